// Every compiler for the host passes the same tests: the files compiler_*_test.cpp are built once
// for each, with the path of its plug-in.
#pragma once

#ifdef MEGJIT_HALIDE_PLUGIN
#include "backends/halide/loader.h"
#else
#include "backends/mlir/loader.h"
#endif

namespace megjit::codegen {

#ifdef MEGJIT_HALIDE_PLUGIN
using CompilerUnderTest = halide_backend::HalideCompiler;
inline constexpr char kPlugin[] = MEGJIT_HALIDE_PLUGIN;
inline constexpr char kVersion[] = "Halide 21.0";
inline constexpr uint64_t kElementSeeds = 150, kReductionSeeds = 150;  // a kernel takes some 40 ms
#else
using CompilerUnderTest = mlir_backend::MlirCompiler;
inline constexpr char kPlugin[] = MEGJIT_MLIR_PLUGIN;
inline constexpr char kVersion[] = "LLVM 22";
inline constexpr uint64_t kElementSeeds = 250, kReductionSeeds = 400;
#endif

inline CompilerUnderTest& compiler() {
    static CompilerUnderTest* one = new CompilerUnderTest(kPlugin);
    return *one;
}

inline KernelFn compile(const KernelIR& kernel) {
    return compiler().load(compiler().compile(kernel));
}

}  // namespace megjit::codegen
