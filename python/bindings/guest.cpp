#include "python/bindings/guest.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "runtime/host/error.h"
#include "runtime/host/mutex.h"

namespace megjit::python {
namespace {

constexpr uintptr_t kDefaultStream = 1;  // as the driver names the one that CUDA's runtime calls 0

uintptr_t current_stream(const CFunctions& functions, int number) {
    void* stream = nullptr;
    if (functions.stream(nanobind::device::cuda::value, number, &stream)) {
        if (PyGILState_Check()) PyErr_Clear();
        throw runtime::DeviceError(runtime::cat("gpu", number, ": its library tells no stream"));
    }
    return stream ? reinterpret_cast<uintptr_t>(stream) : kDefaultStream;
}

// Blocks of the library's allocator, which reuses a block on the stream on which it was made as
// soon as it is given back.
class GuestMemory final : public runtime::Allocator {
public:
    GuestMemory(const CFunctions& functions, int number) : functions_(functions), number_(number) {}
    void serve(runtime::Stream& stream) { stream_ = &stream; }

    void* allocate(size_t bytes) override;
    void release(void* p, size_t bytes) noexcept override;
    runtime::MemoryStats stats() const override {
        const std::lock_guard lock(mutex_);
        return stats_;
    }
    void reset_peak() override {
        const std::lock_guard lock(mutex_);
        stats_.peak_in_use = stats_.peak_reserved = stats_.in_use;
    }
    void trim() override {}  // nothing is cached here
    void set_cap(size_t bytes) override {
        const std::lock_guard lock(mutex_);
        stats_.cap = bytes;
    }
    void set_growth(const runtime::Growth&) override {}
    void fail_after(uint64_t n) override {
        const std::lock_guard lock(mutex_);
        left_ = n;
    }

private:
    struct Block {
        CManaged* managed = nullptr;
        uintptr_t stream = 0;  // the one on which the library made it
    };
    void refuse_if_told(size_t bytes);
    void count(size_t bytes);

    const CFunctions& functions_;
    const int number_;
    runtime::Stream* stream_ = nullptr;
    mutable runtime::Mutex mutex_{"memory of a guest", runtime::Rank::memory};
    std::unordered_map<void*, Block> blocks_;
    runtime::MemoryStats stats_;
    uint64_t left_ = kNever;
};

void GuestMemory::refuse_if_told(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const bool is_told = left_ != kNever && left_-- == 0;
    const bool has_room = stats_.cap == runtime::kNoCap || stats_.in_use + bytes <= stats_.cap;
    if (!is_told && has_room) return;
    if (is_told) left_ = kNever;
    runtime::OutOfMemory refused(bytes, stats_.in_use, stats_.cap);
    refused.is_final = is_told;
    throw refused;
}

void GuestMemory::count(size_t bytes) {
    ++stats_.allocations;
    stats_.in_use += bytes;
    stats_.reserved = stats_.in_use;
    stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
    stats_.peak_reserved = stats_.peak_in_use;
}

// The memory may be used on the library's current stream alone, so the guest's work goes there.
void* GuestMemory::allocate(size_t bytes) {
    refuse_if_told(bytes);
    const uintptr_t stream = current_stream(functions_, number_);
    stream_->follow(stream);
    int64_t extent = static_cast<int64_t>(std::max<size_t>(bytes, 1));
    CTensor prototype{.device = nanobind::device::cuda::value,
                      .device_id = number_,
                      .rank = 1,
                      .dtype = {static_cast<uint8_t>(nanobind::dlpack::dtype_code::UInt), 8, 1},
                      .shape = &extent};
    CManaged* made = nullptr;
    if (functions_.make(&prototype, &made, nullptr, [](void*, const char*, const char*) {}))
        throw runtime::OutOfMemory(bytes, stats().in_use, stats().cap);
    void* const at = static_cast<char*>(made->tensor.data) + made->tensor.offset;
    try {
        const std::lock_guard lock(mutex_);
        blocks_.emplace(at, Block{made, stream});
        count(bytes);
    } catch (...) {
        made->end(made);
        throw;
    }
    return at;
}

void GuestMemory::release(void* p, size_t bytes) noexcept {
    if (!p) return;
    Block block;
    {
        const std::lock_guard lock(mutex_);
        const auto found = blocks_.find(p);
        block = found->second;
        blocks_.erase(found);
        stats_.in_use -= bytes;
        stats_.reserved = stats_.in_use;
    }
    try {
        if (stream_->native() != block.stream)
            stream_->let_native_wait(block.stream, stream_->record());
    } catch (const runtime::DeviceError&) {}  // nothing runs there any more
    block.managed->end(block.managed);
}

}  // namespace

runtime::Device& guest_device(const CFunctions& functions, const std::string& library, int number) {
    static auto& known = *new std::map<std::string, runtime::Device*>;  // with Python's lock held
    const std::string name = runtime::cat("gpu", number, ":", library);
    runtime::Device*& there = known[name];
    if (there) return *there;
    const runtime::Device& gpu = runtime::find_device(runtime::cat("gpu", number));
    auto memory = std::make_shared<GuestMemory>(functions, number);
    std::unique_ptr<runtime::Device> made = gpu.guest(name, memory);
    memory->serve(made->stream());
    there = made.get();
    runtime::register_device(std::move(made));
    return *there;
}

void follow_library(const CFunctions& functions, runtime::Device& guest, int number) {
    guest.stream().follow(current_stream(functions, number));
    guest.stream().report();
}

void let_library_follow(const CFunctions& functions, runtime::Device& guest, int number) {
    const uintptr_t stream = current_stream(functions, number);
    if (guest.stream().native() != stream)
        guest.stream().let_native_wait(stream, guest.stream().record());
}

}  // namespace megjit::python
