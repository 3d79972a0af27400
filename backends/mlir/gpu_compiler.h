// backends/mlir/gpu_compiler.h -- MlirGpuCompiler: kernels for NVIDIA GPUs as PTX, which the driver
// compiles further. The plug-in of MlirCompiler makes them; it needs neither CUDA nor libdevice.
#pragma once

#include "backends/mlir/loader.h"
#include "codegen/gpu_plan.h"

namespace megjit::mlir_backend {

class MlirGpuCompiler final : public codegen::GpuCompiler {
public:
    explicit MlirGpuCompiler(std::filesystem::path plugin) : plugin_(std::move(plugin)) {}

    std::string_view name() const override { return "MLIR"; }
    std::string missing() const override { return plugin_.missing(); }
    std::string version_key() const override { return plugin_.version_key(); }
    std::string variant(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                        codegen::CodeTarget target) const override;
    codegen::GpuImage compile(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                              codegen::CodeTarget target) override;
    std::string source(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                       codegen::CodeTarget target) override;

private:
    MlirCompiler plugin_;
};

}  // namespace megjit::mlir_backend
