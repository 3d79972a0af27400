// runtime/device.h -- what a backend gives: memory, and executables for ops.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/allocator.h"
#include "runtime/live_blocks.h"
#include "runtime/op.h"

namespace megjit::runtime {

// An op (or a generated kernel) made ready for given types: shapes are checked, primitives created,
// weights' layouts chosen. Running it allocates nothing.
class Executable {
public:
    virtual ~Executable() = default;
    // Pointers in the order of the op's inputs and outputs; `workspace` has workspace_bytes()
    // bytes, 64-byte aligned. Outputs do not overlap inputs, except where may_alias() allows it.
    virtual void run(void* const* inputs, void* const* outputs, void* workspace) const = 0;
    virtual size_t workspace_bytes() const { return 0; }
    // May output `out` lie exactly on input `in`?
    virtual bool may_alias(int out, int in) const {
        (void)out;
        (void)in;
        return false;
    }
    // For the plan: what a reader could expect of it that this kernel does not do, and why not.
    virtual std::string_view remark() const { return {}; }
    // Where input `in` and output 0 are one block of the same bytes: the input in the output
    // (concat), or the output in the input (slice). run() does not move what lies there already.
    struct Part {
        bool of_output = false;
        size_t offset = 0;  // bytes
    };
    virtual std::optional<Part> part(int in) const {
        (void)in;
        return {};
    }
};

class Device {
public:
    virtual ~Device() = default;
    virtual std::string_view name() const = 0;  // "cpu0:0"
    virtual Allocator& allocator() = 0;
    // Throws UserError when the device has no kernel for these types.
    virtual std::shared_ptr<const Executable> prepare(const OpCall& call,
                                                      std::span<const Type> outputs) = 0;
    // How the kernel wants operand `input` to lie, if better than row-major.
    virtual Layout packed_layout(const OpCall& call, std::span<const Type> outputs, int input) {
        (void)call, (void)outputs, (void)input;
        return Layout::row_major;
    }
    virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;
    virtual void copy_from_host(void* to, const void* from, size_t bytes) = 0;
    // Is what it computes on apart from the host's memory?
    virtual bool has_own_memory() const { return false; }
    LiveBlocks& live() { return live_; }

private:
    LiveBlocks live_;
};

// Memory for tensors. OutOfMemory tells what is alive.
void* allocate(Device& device, size_t bytes);

void register_device(std::unique_ptr<Device> device);
Device& default_device();  // the first one registered

}  // namespace megjit::runtime
