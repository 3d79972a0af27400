// backends/halide/ -- kernels as machine code of this CPU, made by Halide. In: the text of a
// KernelIR. Out: object code, and its address once loaded. Halide lives in a plug-in that is opened
// at the first compilation; all other code sees this loader alone.
#pragma once

#include "codegen/plugin_compiler.h"

namespace megjit::halide_backend {

class HalideCompiler final : public codegen::PluginCompiler {
public:
    // `library`: libHalide; empty: the plug-in knows where to find it.
    explicit HalideCompiler(std::filesystem::path plugin, std::filesystem::path library = {});
    std::string missing() const override;  // names libHalide, or a CPU other than x86-64
    codegen::KernelFn load(const std::string& object) override;
    using PluginCompiler::function;  // for HalideGpuCompiler

private:
    std::filesystem::path library_;
};

}  // namespace megjit::halide_backend
