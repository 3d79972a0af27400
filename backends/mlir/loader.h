// backends/mlir/ -- kernels as machine code of this CPU, made by MLIR and LLVM. In: the text of a
// KernelIR. Out: object code, and its address once loaded. LLVM lives in a plug-in that is opened
// at the first compilation; all other code sees this loader alone.
#pragma once

#include "codegen/gpu_plan.h"
#include "codegen/plugin_compiler.h"

namespace megjit::mlir_backend {

class MlirCompiler final : public codegen::PluginCompiler {
public:
    explicit MlirCompiler(std::filesystem::path plugin);
    codegen::NativeOps native() const override { return codegen::native_ops(runtime::isa()); }
    codegen::KernelFn load(const std::string& object) override;
    std::string object_for(const codegen::KernelIR& kernel, runtime::Isa isa) override;
    // Compiles legal kernels for GPUs: to PTX, and to readable LLVM IR.
    std::string compile_for_gpu(const codegen::KernelIR& kernel, const codegen::GpuPlan& plan,
                                int arch) const;
    std::string source_for_gpu(const codegen::KernelIR& kernel, const codegen::GpuPlan& plan,
                               int arch) const;

private:
    std::string ask_for_gpu(std::string_view suffix, const codegen::KernelIR& kernel,
                            const codegen::GpuPlan& plan, int arch) const;
};

}  // namespace megjit::mlir_backend
