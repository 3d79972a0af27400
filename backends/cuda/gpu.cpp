#include "backends/cuda/gpu.h"

#include <memory>

#include "runtime/error.h"

namespace megjit::cuda {
namespace {

using runtime::cat;
using runtime::DeviceError;

// Numbers of the driver's interface.
constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76;
constexpr unsigned kNonBlockingStream = 1;  // does not wait for the legacy default stream
constexpr Result kOutOfMemory = 2;

}  // namespace

Gpu::Gpu(const CudaDriver& driver, int ordinal) : driver_(driver) {
    const Functions& call = driver.call();
    driver.check(call.device(&device_, ordinal), "cuDeviceGet");
    char name[256] = {};
    driver.check(call.device_name(name, sizeof name, device_), "cuDeviceGetName");
    name_ = name;
    int major = 0, minor = 0;
    driver.check(call.device_attribute(&major, kComputeCapabilityMajor, device_),
                 "cuDeviceGetAttribute");
    driver.check(call.device_attribute(&minor, kComputeCapabilityMinor, device_),
                 "cuDeviceGetAttribute");
    arch_ = 10 * major + minor;
    driver.check(call.retain_context(&context_, device_), "cuDevicePrimaryCtxRetain");
    try {
        make_current();
        driver.check(call.create_stream(&stream_, kNonBlockingStream), "cuStreamCreate");
    } catch (const DeviceError&) {
        call.release_context(device_);
        throw;
    }
}

Gpu::~Gpu() {
    const Functions& call = driver_.call();
    try_to_make_current();
    call.synchronize_stream(stream_);
    call.destroy_stream(stream_);
    call.release_context(device_);
}

void Gpu::make_current() const {
    driver_.check(driver_.call().set_context(context_), "cuCtxSetCurrent");
}

Address Gpu::allocate(size_t bytes) const {
    make_current();
    Address address = 0;
    const Result result = driver_.call().allocate(&address, bytes ? bytes : 1);
    if (result == kOutOfMemory) {
        size_t free = 0, total = 0;
        driver_.call().memory_info(&free, &total);
        throw DeviceError(cat(name_, ": out of memory: ", bytes, " bytes were asked for, ", free,
                              " of ", total, " are free"));
    }
    driver_.check(result, "cuMemAlloc");
    return address;
}

void Gpu::free(Address address) const {
    try_to_make_current();
    driver_.call().free(address);  // a failure here was reported by the call that caused it
}

void Gpu::upload(Address to, const void* from, size_t bytes) const {
    if (bytes == 0) return;
    make_current();
    driver_.check(driver_.call().upload(to, from, bytes, stream_), "cuMemcpyHtoDAsync");
}

void Gpu::download(void* to, Address from, size_t bytes) const {
    if (bytes == 0) return;
    make_current();
    driver_.check(driver_.call().download(to, from, bytes, stream_), "cuMemcpyDtoHAsync");
    synchronize();
}

void Gpu::clear(Address address, size_t bytes) const {
    if (bytes == 0) return;
    make_current();
    driver_.check(driver_.call().fill(address, 0, bytes, stream_), "cuMemsetD8Async");
}

void Gpu::synchronize() const {
    make_current();
    driver_.check(driver_.call().synchronize_stream(stream_), "cuStreamSynchronize");
}

float Gpu::milliseconds(const std::function<void()>& queue) const {
    make_current();
    const Functions& call = driver_.call();
    const auto new_event = [&] {
        Event event = nullptr;
        driver_.check(call.create_event(&event, 0), "cuEventCreate");
        return std::unique_ptr<OpaqueEvent, Result (*)(Event)>(event, call.destroy_event);
    };
    const auto from = new_event(), to = new_event();
    driver_.check(call.record_event(from.get(), stream_), "cuEventRecord");
    queue();
    driver_.check(call.record_event(to.get(), stream_), "cuEventRecord");
    driver_.check(call.synchronize_event(to.get()), "cuEventSynchronize");
    float ms = 0;
    driver_.check(call.elapsed(&ms, from.get(), to.get()), "cuEventElapsedTime");
    return ms;
}

}  // namespace megjit::cuda
