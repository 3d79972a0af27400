// MLIR's LLVM and Halide's in one process, in turns.
#include <gtest/gtest.h>

#include "backends/halide/loader.h"
#include "backends/mlir/loader.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

TEST(BothCompilers, GiveTheSameBits) {
    mlir_backend::MlirCompiler mlir(MEGJIT_MLIR_PLUGIN);
    halide_backend::HalideCompiler halide(MEGJIT_HALIDE_PLUGIN);
    for (uint64_t seed = 0; seed < 20; ++seed) {
        Case c = random_case(seed);
        const auto expected = c.expected();
        for (KernelCompiler* compiler :
             {static_cast<KernelCompiler*>(&mlir), static_cast<KernelCompiler*>(&halide)}) {
            const KernelFn fn = compiler->load(compiler->compile(c.kernel));
            std::vector<std::vector<char>> outputs;
            std::vector<void*> pointers;
            for (const auto& output : expected) outputs.emplace_back(output.size());
            for (auto& output : outputs) pointers.push_back(output.data());
            fn(c.input_pointers().data(), pointers.data(), c.launch.extents.data(),
               c.launch.strides.data(), 0, units(c.kernel, c.launch));
            for (size_t k = 0; k < outputs.size(); ++k) {
                const DType dtype = c.kernel.outputs[k].dtype;
                for (size_t i = 0; i + size_of(dtype) <= outputs[k].size(); i += size_of(dtype))
                    ASSERT_TRUE(same_value(dtype, outputs[k].data() + i, expected[k].data() + i))
                        << compiler->name() << ", seed " << seed;
            }
        }
    }
}

}}  // namespace megjit::codegen
