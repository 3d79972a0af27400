#include "backends/cuda/gpu.h"

#include <unistd.h>

#include "codegen/compiler.h"
#include "runtime/core/idle_memory.h"
#include "runtime/host/error.h"
#include "runtime/host/turn.h"

namespace megjit::cuda {
namespace {

using runtime::cat;
using runtime::DeviceError;

// Numbers of the driver's interface.
constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // options of cuModuleLoadDataEx
constexpr int kMaxDynamicSharedBytes = 8;  // an attribute of functions
constexpr uint32_t kSharedBytesForAll = 48 << 10;  // more must be asked for
constexpr Result kOutOfMemory = 2;
// A second, by 16 lanes of PCIe 4 or 5: the generation that cards of the architecture have.
constexpr double kLinkBytes = 2.5e10, kLinkBytesOfHopper = 5e10;

Module load_module(const Gpu& gpu, const std::string& code) {
    gpu.make_current();
    std::string log(8192, '\0');
    int options[] = {kErrorLog, kErrorLogBytes};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
    Module module = nullptr;
    // PTX is text that ends with a zero, as every std::string does.
    const Result result = gpu.with_room([&] {
        return gpu.driver().call().load_module(&module, code.c_str(), 2, options, values);
    }, code.size(), "a kernel's code");
    if (result == 0) return module;
    try {
        gpu.driver().check(result, "cuModuleLoadDataEx");
    } catch (const DeviceError& error) {
        throw DeviceError(cat(error.what(), "\n  ", gpu.name(), " (sm_", gpu.target().gpu_arch,
                              ") does not load a kernel: ", log.c_str()));
    }
    return nullptr;
}

}  // namespace

LoadedKernel::LoadedKernel(const Gpu& gpu, const std::string& code, const std::string& entry,
                           uint32_t shared_bytes)
    : gpu_(gpu), module_(load_module(gpu, code)) {
    const CudaDriver& driver = gpu.driver();
    try {
        driver.check(driver.call().function(&function_, module_, entry.c_str()),
                     "cuModuleGetFunction");
        if (shared_bytes > kSharedBytesForAll)
            driver.check(driver.call().set_function_attribute(function_, kMaxDynamicSharedBytes,
                                                              static_cast<int>(shared_bytes)),
                         "cuFuncSetAttribute");
    } catch (const DeviceError&) {
        driver.call().unload_module(module_);
        throw;
    }
}

LoadedKernel::~LoadedKernel() {
    try {
        gpu_.make_current();
        gpu_.driver().call().unload_module(module_);
    } catch (const DeviceError&) {}  // a child of fork() leaves it to the parent
}

Gpu::Gpu(const CudaDriver& driver, int ordinal)
    : driver_(driver),
      ordinal_(ordinal),
      forks_(runtime::forks()),
      description_(describe_card(driver, ordinal)) {
    driver.check(driver.call().device(&device_, ordinal), "cuDeviceGet");
}

Gpu::Gpu(const CudaDriver& driver, CardDescription description)
    : driver_(driver),
      ordinal_(0),
      forks_(runtime::forks()),
      description_(std::move(description)) {}

std::string Gpu::identity() const {
    constexpr char kDigits[] = "0123456789abcdef";
    char bytes[16] = {};
    driver_.check(driver_.call().device_uuid(bytes, device_), "cuDeviceGetUuid");
    std::string text = "GPU-";
    for (const char byte : bytes)
        text += {kDigits[static_cast<uint8_t>(byte) >> 4], kDigits[byte & 15]};
    return driver_.emulation() ? cat(text, " of process ", getpid()) : text;
}

runtime::Speeds Gpu::speeds() const {
    constexpr double kFlopsPerClock = 256;  // f32 of a multiprocessor: 128 lanes that multiply-add
    const CardDescription& card = description_;
    return {.flops = kFlopsPerClock * card.multiprocessors * card.clock_khz * 1e3,
            .bytes = 2.0 * card.memory_clock_khz * 1e3 * card.memory_bus_bits / 8,
            .link_bytes = card.arch >= 90 ? kLinkBytesOfHopper : kLinkBytes};
}

void Gpu::refuse_child() const {
    if (forks_ != runtime::forks())
        throw DeviceError(
            cat("gpu", ordinal_, " was in use before fork(), and a child cannot use it",
                "\n  fix: start processes with multiprocessing's method \"spawn\", or "
                "use the device in children only"));
}

void Gpu::make_current() const {
    refuse_child();
    {
        const std::lock_guard lock(context_mutex_);
        if (!context_)
            driver_.check(driver_.call().retain_context(&context_, device_),
                          "cuDevicePrimaryCtxRetain");
    }
    driver_.check(driver_.call().set_context(context_), "cuCtxSetCurrent");
}

Context Gpu::context() const {
    make_current();
    return context_;
}

Gpu::Memory Gpu::memory() const {
    make_current();
    Memory memory;
    driver_.check(driver_.call().memory_info(&memory.free, &memory.total), "cuMemGetInfo");
    return memory;
}

Address Gpu::allocate(size_t bytes) const {
    make_current();
    Address address = 0;
    const Result result = driver_.call().allocate(&address, bytes);
    if (result == kOutOfMemory) return 0;
    driver_.check(result, "cuMemAlloc");
    return address;
}

void Gpu::free(Address address) const noexcept try {
    make_current();
    driver_.call().free(address);  // a failure here was told by the call that caused it
} catch (const DeviceError&) {}

Result Gpu::with_room(const std::function<Result()>& call, size_t bytes,
                      const std::string& what_for) const {
    if (const Result result = call(); result != kOutOfMemory) return result;
    runtime::give_up_idle_memory();
    std::string holders;
    for (runtime::Device* device : runtime::all_devices()) {
        if (device->is_host()) continue;
        device->allocator().trim();
        holders += runtime::largest_holders(*device);
    }
    if (const Result result = call(); result != kOutOfMemory) return result;
    const Memory now = memory();
    runtime::OutOfMemory error(bytes, now.total - now.free, runtime::kNoCap);
    error.say_what_for(what_for);
    error.say_who_holds(std::move(holders));
    throw error;
}

void* Gpu::pinned(size_t bytes) const {
    make_current();
    void* memory = nullptr;
    const auto allocate = [&] { return driver_.call().allocate_host(&memory, bytes, 0); };
    driver_.check(with_room(allocate, bytes, "pinned memory of the host"), "cuMemHostAlloc");
    return memory;
}

std::shared_ptr<std::byte[]> Gpu::host_memory(size_t bytes) const {
    return {static_cast<std::byte*>(pinned(bytes)), [this](std::byte* p) {
        try {
            make_current();
            driver_.call().free_host(p);
        } catch (const DeviceError&) {}  // a child of fork() leaves it to the parent
    }};
}

std::shared_ptr<const LoadedKernel> Gpu::load(
    const std::shared_ptr<const codegen::GpuImage>& image) {
    refuse_child();
    const std::lock_guard lock(mutex_);
    std::weak_ptr<const LoadedKernel>& known = images_[image.get()];
    if (auto loaded = known.lock()) return loaded;
    // With the image, whose address must not become another's.
    struct Kept : LoadedKernel {
        Kept(const Gpu& gpu, std::shared_ptr<const codegen::GpuImage> from)
            : LoadedKernel(gpu, from->code, from->entry, from->shared_bytes),
              image(std::move(from)) {}
        std::shared_ptr<const codegen::GpuImage> image;
    };
    auto loaded = std::make_shared<const Kept>(*this, image);
    known = loaded;
    return loaded;
}

std::shared_ptr<const LoadedKernel> Gpu::load_source(const std::string& text,
                                                     const std::string& entry) {
    refuse_child();
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const LoadedKernel>& loaded = sources_[cat(entry, "\n", text)];
    if (!loaded)
        loaded = std::make_shared<const LoadedKernel>(
            *this, codegen::KernelService::instance().compile_cuda(text, target()), entry, 0);
    return loaded;
}

}  // namespace megjit::cuda
