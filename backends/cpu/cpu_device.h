// backends/cpu/ -- the host as a device: the element-wise VM, oneDNN, and kernels written by hand.
// In: ops with their types. Out: Executables. Knows runtime/ and codegen/; never a graph.
//
// backends/cpu/cpu_device.h -- CpuDevice, and the table in which kernels register for their ops.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "codegen/kernel_device.h"

namespace megjit::cpu {

// Makes an op ready for given types. Null where there is no kernel for them.
using Prepare = std::shared_ptr<const runtime::Executable> (*)(
    const runtime::OpCall&, std::span<const runtime::Type> outputs);
// `computes_whole` says for which calls passes leave the op as it is, though it can be expanded;
// null: for none.
using Selects = bool (*)(const runtime::OpCall&);
void register_kernel(std::string_view op, Prepare prepare, Selects computes_whole = nullptr);

// Returns how the op wants its weights (OperandKind) to lie.
using Packing = runtime::Layout (*)(const runtime::OpCall&, std::span<const runtime::Type> outputs);
void register_packing(std::string_view op, Packing packing);

class CpuDevice final : public codegen::KernelDevice {
public:
    // `expand` serves ops without a kernel.
    explicit CpuDevice(std::unique_ptr<runtime::Allocator> allocator,
                       runtime::ExpandOp expand = nullptr);

    std::string_view name() const override { return name_; }
    runtime::DeviceInfo info() const override;
    std::unique_ptr<runtime::Device> sibling(std::string name) const override;
    runtime::Allocator& allocator() override { return *allocator_; }
    bool computes_whole(const runtime::OpCall& call) const override;
    std::shared_ptr<const runtime::Executable> prepare(
        const runtime::OpCall& call, std::span<const runtime::Type> outputs) override;
    runtime::Layout packed_layout(const runtime::OpCall& call,
                                  std::span<const runtime::Type> outputs, int input) override;
    // Runs the kernel on all threads of the host.
    std::shared_ptr<const runtime::Executable> prepare_kernel(
        const codegen::KernelIR& kernel, std::vector<codegen::LaunchShape> launches,
        const codegen::CompiledKernel* code) override;

private:
    CpuDevice(const CpuDevice& other, std::string name);

    const std::string name_ = "cpu0:0";
    const std::shared_ptr<runtime::Allocator> allocator_;
    const runtime::ExpandOp expand_;
};

}  // namespace megjit::cpu
