// backends/halide/gpu_compiler.h -- HalideGpuCompiler: kernels for NVIDIA GPUs as PTX, made by the
// plug-in of HalideCompiler.
#pragma once

#include "backends/halide/loader.h"
#include "codegen/gpu_image.h"

namespace megjit::halide_backend {

class HalideGpuCompiler final : public codegen::GpuCompiler {
public:
    explicit HalideGpuCompiler(std::filesystem::path plugin, std::filesystem::path library = {})
        : host_(std::move(plugin), std::move(library)) {}

    std::string_view name() const override { return "HALIDE"; }
    std::string missing() const override { return host_.missing(); }
    std::string version_key() const override { return host_.version_key(); }
    std::string variant(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                        codegen::CodeTarget target) const override;
    codegen::GpuImage compile(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                              codegen::CodeTarget target) override;
    std::string source(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                       codegen::CodeTarget target) override;

private:
    HalideCompiler host_;
};

}  // namespace megjit::halide_backend
