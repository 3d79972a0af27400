// runtime/core/device.h -- what a backend provides: memory, a queue of work, and executables for
// ops. (For generated kernels: codegen/kernel_device.h.)
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/allocator.h"
#include "runtime/core/live_blocks.h"
#include "runtime/core/op.h"
#include "runtime/core/stream.h"

namespace megjit::runtime {

// An op (or a generated kernel) made ready for given types: shapes are checked, primitives created,
// weights' layouts chosen. A run needs no memory of the device but its workspace.
class Executable {
public:
    virtual ~Executable() = default;
    // Queues one run. The pointers are in the order of the op's inputs and outputs; `workspace` has
    // workspace_bytes() bytes, aligned to workspace_align(). Outputs do not overlap inputs, except
    // where may_alias() allows it. The arrays may change when the call returns.
    virtual void enqueue(Stream& stream, void* const* inputs, void* const* outputs,
                         void* workspace) const = 0;
    virtual size_t workspace_bytes() const { return 0; }
    virtual size_t workspace_align() const { return 64; }  // a power of two
    // May output `out` lie exactly on input `in`?
    virtual bool may_alias(int out, int in) const {
        (void)out;
        (void)in;
        return false;
    }
    // About the bytes that it holds itself: what a library made for its sizes, its code, its keys.
    virtual size_t held_bytes() const { return size_t{4} << 10; }
    // Bytes that a run reads and writes in addition to the op's own (OpDef::cost), as it copies
    // operands for a library.
    virtual double copied_bytes() const { return 0; }
    // Does enqueue() wait for values of the device in order to know what to queue?
    virtual bool waits_for_values() const { return false; }
    // For the plan: what a reader could expect of the kernel that it does not do, and why not.
    virtual std::string_view remark() const { return {}; }
    // Says that input `in` and output 0 are one block of the same bytes: the input lies in the
    // output (concat), or the output in the input (slice). A run does not move what lies there
    // already.
    struct Part {
        bool of_output = false;
        size_t offset = 0;  // bytes
    };
    virtual std::optional<Part> part(int in) const {
        (void)in;
        return {};
    }
};

// What one run of an executable gives to a device to do.
struct Queued {
    int64_t kernels = 0, blocks = 0;  // `blocks` counts those of all kernels
    int64_t calls = 0;  // calls of libraries and of the host
    int64_t moves = 0;  // copies and fills by the driver
    double moved_bytes = 0;  // bytes that these read and write
};

class Device;
// Compiles an op as a program of the simpler ops that it is made of (OpDef::expand and loop), or of
// the graphs that it holds; null where there are none. jit/ implements it.
using ExpandOp = std::shared_ptr<const Executable> (*)(Device&, const OpCall&);

// An estimate of a device's speed, for plans: operations, bytes of its memory, and bytes to and
// from the host, each per second.
struct Speeds {
    double flops = 5e10, bytes = 1e10, link_bytes = 1e10;
    // Rates of sums of products (Cost::is_product), in float32 and in halves; 0: `flops` holds for
    // them.
    double product_flops = 0, half_product_flops = 0;

    // `dtype` is the type of the first operand.
    double flops_of(const Cost& cost, DType dtype) const {
        const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
        const double of_products = is_half ? half_product_flops : product_flops;
        return cost.is_product && of_products > 0 ? of_products : flops;
    }
    double seconds(const Cost& cost, DType dtype) const {
        return cost.flops / flops_of(cost, dtype) + cost.bytes / bytes;
    }
    double seconds(const OpCall& call, std::span<const Type> outputs) const {
        return seconds(cost_of(call, outputs), dtype_of(call));
    }
    static DType dtype_of(const OpCall& call) {
        return call.inputs.empty() ? DType::f32 : call.inputs[0].dtype;
    }
};

enum class DeviceKind : uint8_t { cpu, gpu };

// What generated kernels are compiled for.
struct CodeTarget {
    CodeTarget(int gpu_arch = 0, bool as_ptx = false) : gpu_arch(gpu_arch), as_ptx(as_ptx) {}
    int gpu_arch;  // ten times the compute capability: 90 is sm_90; 0: this host
    bool as_ptx;  // for a GPU: text that its driver compiles, not machine code
    bool is_gpu() const { return gpu_arch > 0; }
};

// What a device says of itself.
struct DeviceInfo {
    DeviceKind kind = DeviceKind::cpu;
    int number = 0;
    std::string model;
    size_t total_bytes = 0, free_bytes = 0;  // bytes of its memory, now; caps are ignored
};

// A place where values live, and the queue of its work. "gpu0:0" and "gpu0:1" are two devices. All
// CPUs share one memory, but each name that a program uses ("xpux:0", "cpu1:0") is a device of its
// own: their values do not mix by accident.
class Device {
public:
    virtual ~Device() = default;
    virtual std::string_view name() const = 0;  // "cpu0:0", a name for find_device()
    virtual DeviceInfo info() const = 0;
    // Another device with the same memory, and with a queue of its own where this one has queues.
    virtual std::unique_ptr<Device> sibling(std::string name) const = 0;
    // Another device with the same kernels, whose memory is another library's, and whose work is
    // queued where that library queues its own (Stream::follow). Null where there is no such
    // device.
    virtual std::unique_ptr<Device> guest(std::string name,
                                          std::shared_ptr<Allocator> memory) const {
        return (void)name, (void)memory, nullptr;
    }
    virtual Allocator& allocator() = 0;
    virtual Stream& stream() { return inline_stream(); }
    // For copies that run beside the work of stream().
    virtual Stream& copy_stream() { return stream(); }
    // Returns memory of the host that copies on the device's streams reach without a detour.
    virtual std::shared_ptr<std::byte[]> host_memory(size_t bytes) {
        return std::make_shared_for_overwrite<std::byte[]>(bytes);
    }
    // Is the address in this device's memory, whoever allocated it?
    virtual bool holds(const void* address) const { return (void)address, false; }
    // May the host read and write the device's memory? Then all other such devices may, too.
    bool is_host() const { return is_host_; }
    // Does the device have a better kernel for the op than what the op is made of (OpDef::expand
    // and loop), or than a generated kernel? Then passes leave the op as it is.
    virtual bool computes_whole(const OpCall& call) const {
        (void)call;
        return false;
    }
    // Throws UserError when the device has no kernel for these types.
    virtual std::shared_ptr<const Executable> prepare(const OpCall& call,
                                                      std::span<const Type> outputs) = 0;
    virtual CodeTarget target() const { return {}; }
    // Do the threads of a generated kernel share a row? Then such kernels are also the best for a
    // few long rows (OpDef::expand).
    virtual bool shares_rows() const { return false; }
    // Returns the layout in which the kernel wants operand `input`, if one is better than
    // row-major.
    virtual Layout packed_layout(const OpCall& call, std::span<const Type> outputs, int input) {
        (void)call, (void)outputs, (void)input;
        return Layout::row_major;
    }
    virtual Speeds speeds() const { return {}; }  // the default: one core of a CPU and its memory
    // Does the device exist for plans alone? Then what is prepared for it has no code, and never
    // runs.
    virtual bool is_for_plans() const { return false; }
    // Returns what a run of that executable would queue on such a device, at addresses that nobody
    // reads. Returns nothing where the work depends on values.
    virtual std::optional<Queued> rehearse(const Executable& executable, void* const* inputs,
                                           void* const* outputs, void* workspace) {
        (void)executable, (void)inputs, (void)outputs, (void)workspace;
        return {};
    }
    LiveBlocks& live() { return *live_; }

protected:
    explicit Device(bool is_host, std::shared_ptr<LiveBlocks> live = std::make_shared<LiveBlocks>())
        : is_host_(is_host), live_(std::move(live)) {}
    const std::shared_ptr<LiveBlocks>& shared_live() const { return live_; }

private:
    const bool is_host_;
    const std::shared_ptr<LiveBlocks> live_;
};

// Memory for tensors. The OutOfMemory that it throws says which tensors are alive.
void* allocate(Device& device, size_t bytes);

// Devices live as long as the process. The first one is the host's; numbers and keys are made
// there.
void register_device(std::unique_ptr<Device> device);
Device& host_device();  // "cpu0:0"
std::vector<Device*> all_devices();  // every device made so far
// `discover` runs once, when somebody first asks for a device other than the host: it registers
// what takes a while to find, such as a driver and its GPUs, and returns why there is none, for
// errors.
void discover_later(std::function<std::string()> discover);
void discover_devices();

// Users name a place by a kind (cpu, gpu, ...), a number or "x" for the first one, and perhaps a
// stream: "gpu0", "xpux", "gpu1:2". "cuda" means gpu, "xpu" a GPU where there is one and else the
// CPU. A guest has the name that it was registered with. UserError (value) for a text that is no
// such name.
std::string physical_name(std::string_view name);  // "xpux" -> "cpu0:0"
// Makes a CPU or a stream when it is first asked for. UserError (runtime) where there is no such
// device.
Device& find_device(std::string_view name);

}  // namespace megjit::runtime
