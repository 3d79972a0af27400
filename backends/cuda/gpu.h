// backends/cuda/gpu.h -- Gpu: one card's context and facts, its memory, and code that was loaded
// into it.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "backends/cuda/driver.h"
#include "backends/cuda/products/card.h"
#include "codegen/gpu_image.h"
#include "runtime/core/device.h"

namespace megjit::cuda {

class Gpu;

// A module and one function of it. Stays loaded while somebody holds it.
class LoadedKernel {
public:
    // DeviceError with the driver's log when the code does not load.
    LoadedKernel(const Gpu& gpu, const std::string& code, const std::string& entry,
                 uint32_t shared_bytes);
    explicit LoadedKernel(const Gpu& gpu) : gpu_(gpu) {}  // without code, to be counted
    ~LoadedKernel();
    LoadedKernel(const LoadedKernel&) = delete;
    Function function() const { return function_; }

private:
    const Gpu& gpu_;
    Module module_ = nullptr;
    Function function_ = nullptr;
};

// A GPU's context is current to this thread while it lives; then the one that was current before,
// whose GPU other libraries use.
class [[nodiscard]] Entered {
public:
    Entered() = default;  // nothing changed
    Entered(const Functions& call, Context before) : call_(&call), before_(before) {}
    Entered(Entered&& other) noexcept
        : call_(std::exchange(other.call_, nullptr)), before_(other.before_) {}
    Entered& operator=(Entered&&) = delete;
    ~Entered() {
        if (call_) call_->set_context(before_);
    }

private:
    const Functions* call_ = nullptr;
    Context before_ = nullptr;
};

// Any thread may call; every failure is a DeviceError.
class Gpu {
public:
    Gpu(const CudaDriver& driver, int ordinal);
    // Describes a card that is not there. One that does not compile serves plans alone.
    Gpu(const CudaDriver& driver, CardDescription description, bool compiles);
    Gpu(const Gpu&) = delete;

    const CudaDriver& driver() const { return driver_; }
    int ordinal() const { return ordinal_; }
    const CardDescription& description() const { return description_; }
    const std::string& name() const { return description_.name; }
    bool is_there() const { return is_there_; }
    // Else kernels have no code: what is queued is counted (CudaDevice::rehearse).
    bool compiles() const { return compiles_; }
    // No other GPU of any machine has it; of emulated ones, no other process's.
    std::string identity() const;
    // 90 is sm_90. An emulated card takes PTX only.
    runtime::CodeTarget target() const {
        return {description_.arch, driver_.emulation() != nullptr};
    }
    runtime::Speeds speeds() const;
    struct Memory {
        size_t free = 0, total = 0;
    };
    Memory memory() const;
    // Comes before calls of the driver. DeviceError in a child of fork(), where no GPU can be
    // used that the parent used.
    Entered enter() const;
    void refuse_child() const;  // DeviceError in a child of the process that uses it
    Context context() const;  // made at the first use

    // From now on copies between both go without the host, where the machine has a way.
    void reach(const Gpu& other) const;
    bool holds(const void* address) const;  // also of other libraries' memory
    Address allocate(size_t bytes) const;  // 0 when there is no room
    void free(Address address) const noexcept;
    // Calls the driver by `call`. If that finds no memory, everything that keeps memory for later
    // gives it up, and `call` is tried again. OutOfMemory (`bytes` for `what_for`) if that fails.
    Result with_room(const std::function<Result()>& call, size_t bytes,
                     const std::string& what_for) const;
    // Pinned: copies to and from it run beside the host's work. The first is freed by the caller.
    void* pinned(size_t bytes) const;
    std::shared_ptr<std::byte[]> host_memory(size_t bytes) const;

    // From what all launches of the image share. What was asked for last stays loaded: to unload a
    // module waits for the GPU.
    std::shared_ptr<const LoadedKernel> load(const std::shared_ptr<const codegen::GpuImage>& image);
    // CUDA C++ of ours; `text` is compiled once, where the GPU compiles.
    std::shared_ptr<const LoadedKernel> load_source(const std::string& text,
                                                    const std::string& entry);

private:
    const CudaDriver& driver_;
    int ordinal_;
    bool is_there_;  // else described alone
    bool compiles_ = true;
    uint64_t forks_;  // of the process that may use it
    CardDescription description_;
    DeviceId device_ = 0;
    // The primary one, made at the first use; never released: the process ends with it.
    mutable std::mutex context_mutex_;
    mutable Context context_ = nullptr;
    mutable std::set<int> reached_;  // ordinals
    struct OfImage;
    using Recent = std::list<std::shared_ptr<const OfImage>>;
    std::mutex mutex_;  // of what follows; nothing is compiled, loaded or unloaded under it
    Recent recent_;  // the last asked for first
    std::unordered_map<const codegen::GpuImage*, Recent::iterator> images_;
    std::unordered_map<std::string, std::shared_ptr<const LoadedKernel>> sources_;
};

}  // namespace megjit::cuda
