// backends/halide/ -- kernels as machine code of this CPU, by Halide.
// In: the text of a KernelIR. Out: object code, and its address once loaded.
// Halide lives in a plug-in that is opened at the first compile; this loader is all that others
// see.
#pragma once

#include "codegen/plugin_compiler.h"

namespace megjit::halide_backend {

class HalideCompiler final : public codegen::PluginCompiler {
public:
    // `library`: libHalide; empty: the plug-in knows where it is.
    explicit HalideCompiler(std::filesystem::path plugin, std::filesystem::path library = {});
    std::string missing() const override;  // libHalide, another CPU than an x86-64
    codegen::KernelFn load(const std::string& object) override;
    using PluginCompiler::function;  // for HalideGpuCompiler

private:
    std::filesystem::path library_;
};

}  // namespace megjit::halide_backend
