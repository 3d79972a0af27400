// backends/cuda/gpu.h -- Gpu: one card's context and properties, its memory, and the code that was
// loaded into it.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
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
    explicit LoadedKernel(const Gpu& gpu) : gpu_(gpu) {}  // has no code, and is only counted
    ~LoadedKernel();
    LoadedKernel(const LoadedKernel&) = delete;
    Function function() const { return function_; }

private:
    const Gpu& gpu_;
    Module module_ = nullptr;
    Function function_ = nullptr;
};

// Makes a GPU's context current to this thread while it lives; then the former context is current
// again, whose GPU other libraries use. Inside of another one of the same context it asks and
// changes nothing: a step enters once, not for each piece of its work.
class [[nodiscard]] Entered {
public:
    Entered() = default;  // changes nothing
    // `before`: what is made current at the end, if anything.
    Entered(const Functions& call, Context ours, std::optional<Context> before)
        : call_(&call), before_(before), outer_(std::exchange(inside_, ours)) {}
    Entered(Entered&& other) noexcept
        : call_(std::exchange(other.call_, nullptr)),
          before_(other.before_),
          outer_(other.outer_) {}
    Entered& operator=(Entered&&) = delete;
    ~Entered() {
        if (!call_) return;
        inside_ = outer_;
        if (before_) call_->set_context(*before_);
    }
    static bool is_inside(Context context) { return inside_ == context; }

private:
    static inline thread_local Context inside_ = nullptr;  // of the innermost of this thread
    const Functions* call_ = nullptr;
    std::optional<Context> before_;
    Context outer_ = nullptr;
};

// Any thread may call; every failure is a DeviceError.
class Gpu {
public:
    Gpu(const CudaDriver& driver, int ordinal);
    // Describes a card that does not exist here. One that does not compile serves plans alone.
    Gpu(const CudaDriver& driver, CardDescription description, bool compiles);
    Gpu(const Gpu&) = delete;

    const CudaDriver& driver() const { return driver_; }
    int ordinal() const { return ordinal_; }
    const CardDescription& description() const { return description_; }
    const std::string& name() const { return description_.name; }
    bool is_there() const { return is_there_; }
    // If not, kernels have no code: queued work is only counted (CudaDevice::rehearse).
    bool compiles() const { return compiles_; }
    // A text that no other GPU of any machine has; for emulated GPUs, no other process's.
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
    // To be called before calls of the driver. DeviceError in a child of fork(), which cannot use a
    // GPU that its parent used.
    Entered enter() const;
    void refuse_child() const;  // DeviceError in a child of the process that uses the GPU
    Context context() const;  // made at the first use

    // From now on copies between the two GPUs bypass the host, where the machine has a way.
    void reach(const Gpu& other) const;
    bool holds(const void* address) const;  // true for other libraries' memory, too
    Address allocate(size_t bytes) const;  // 0 when there is no room
    void free(Address address) const noexcept;
    // Calls the driver by `call`. If the driver finds no memory, all holders of idle memory give it
    // up, and `call` is tried again. OutOfMemory (`bytes` for `what_for`) if that fails.
    Result with_room(const std::function<Result()>& call, size_t bytes,
                     const std::string& what_for) const;
    // Pinned memory: copies to and from it run beside the host's work. The caller frees it.
    void* pinned(size_t bytes) const;
    std::shared_ptr<std::byte[]> host_memory(size_t bytes) const;

    // Loads what all launches of the image share. Recently used images stay loaded, for unloading a
    // module waits for the GPU.
    std::shared_ptr<const LoadedKernel> load(const std::shared_ptr<const codegen::GpuImage>& image);
    // Loads CUDA C++ of ours; `text` is compiled once, if the GPU compiles.
    std::shared_ptr<const LoadedKernel> load_source(const std::string& text,
                                                    const std::string& entry);

private:
    const CudaDriver& driver_;
    int ordinal_;
    bool is_there_;  // if not, the card is only described
    bool compiles_ = true;
    uint64_t forks_;  // which process may use it
    CardDescription description_;
    DeviceId device_ = 0;
    // The primary context, made at the first use; it is never released, but ends with the process.
    mutable std::mutex context_mutex_;
    mutable Context context_ = nullptr;
    mutable std::set<int> reached_;  // ordinals of the GPUs that reach() was called for
    struct OfImage;
    using Recent = std::list<std::shared_ptr<const OfImage>>;
    std::mutex mutex_;  // guards the members below, but no loading or compiling
    Recent recent_;  // most recently used first
    std::unordered_map<const codegen::GpuImage*, Recent::iterator> images_;
    std::unordered_map<std::string, std::shared_ptr<const LoadedKernel>> sources_;
};

}  // namespace megjit::cuda
