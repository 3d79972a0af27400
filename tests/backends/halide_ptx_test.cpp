// Kernels for GPUs as text: what the launcher relies on, and what the bits rely on.
#include <gtest/gtest.h>

#include "backends/halide/gpu_compiler.h"
#include "codegen/legalize.h"
#include "runtime/host/error.h"
#include "tests/backends/ptxas.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::halide_backend { namespace {

using namespace codegen;

HalideGpuCompiler& compiler() {
    static HalideGpuCompiler* one = new HalideGpuCompiler(MEGJIT_HALIDE_PLUGIN);
    return *one;
}

size_t count(std::string_view text, std::string_view part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
}

// A parameter for each word that the launcher passes.
std::string fault_of(const GpuImage& image, const KernelIR& kernel, const LaunchShape& launch) {
    const std::vector<uint64_t> inputs(memory_inputs(kernel)), outputs(kernel.outputs.size());
    const size_t words = parameters_of(image, launch, inputs, outputs, {}).size();
    if (!image.is_ptx || count(image.code, ".visible .entry megjit_kernel(") != 1)
        return "no entry";
    if (count(image.code, ".param .u64 megjit_kernel_param_") != words)
        return cat(count(image.code, ".param .u64"), " parameters of 8 bytes instead of ", words);
    if (count(image.code, ".param .") != words) return "parameters of another size";
    if (count(image.code, ".extern") != 0) return "it calls what it does not bring";
    if (count(image.code, ".ftz") != 0 || count(image.code, ".approx") != 0)
        return "it rounds in another way";
    return "";
}

TEST(HalidePtx, ElementsOfRandomKernels) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
        Case c = random_case(seed);
        c.launch.strides.resize((c.kernel.inputs.size() + c.kernel.outputs.size()) *
                                static_cast<size_t>(c.kernel.rank));
        const GpuImage image = compiler().compile(legalize(c.kernel), c.launch, 90);
        EXPECT_EQ(image.cover, Cover::elements);
        EXPECT_EQ(image.per_block, image.block[0]);
        ASSERT_EQ(fault_of(image, c.kernel, c.launch), "") << "seed " << seed << "\n"
                                                           << print(c.kernel);
    }
}

TEST(HalidePtx, ReductionsOverRowsAndColumns) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
        Case c = random_reduction_case(seed);
        const GpuImage image = compiler().compile(legalize(c.kernel), c.launch, 90);
        EXPECT_EQ(image.cover, c.kernel.lanes == Lanes::last ? Cover::rows : Cover::columns);
        ASSERT_EQ(fault_of(image, c.kernel, c.launch), "") << "seed " << seed << "\n"
                                                           << print(c.kernel);
        EXPECT_GT(count(image.code, "bar.sync"), 0u) << "seed " << seed;
        // A warp shuffles.
        EXPECT_EQ(image.shared_bytes > 0, image.block[0] > 32) << "seed " << seed;
    }
}

TEST(HalidePtx, NothingIsSpilled) {
    if (!ptxas()) GTEST_SKIP() << "MEGJIT_PTXAS names no assembler: pip install nvidia-cuda-nvcc";
    for (uint64_t seed = 0; seed < 12; ++seed) {
        const Case c = random_reduction_case(seed);
        const int arch = std::vector<int>{80, 90, 100}[seed % 3];
        const GpuImage image = compiler().compile(legalize(c.kernel), c.launch, arch);
        EXPECT_EQ(resources_of(image.code, arch).spilled_bytes, 0)
            << "seed " << seed << " sm_" << arch;
    }
}

// A contracted product and sum would round once.
TEST(HalidePtx, NothingIsContracted) {
    const KernelIR kernel = parse_kernel(
        "kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = mul %0 %0\n%2: f32 = add %1 %0\n%3: f32 = fma %2 %2 %0\nout f32 %3\n");
    const std::string ptx = compiler().source(kernel, {{64}, {1, 1}}, 80);
    EXPECT_EQ(count(ptx, "fma.rn.f32"), 1u) << ptx;
    EXPECT_EQ(count(ptx, "mul.rn.f32"), 1u) << ptx;
}

TEST(HalidePtx, LaunchesOfAnySizeShareAnImage) {
    const KernelIR kernel =
        parse_kernel("kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\nout f32 %0\n");
    EXPECT_EQ(compiler().variant(kernel, {{64}, {1, 1}}, 90),
              compiler().variant(kernel, {{1'000'000}, {1, 1}}, 90));
}

TEST(HalidePtx, OldGpusAreRefused) {
    const KernelIR kernel =
        parse_kernel("kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\nout f32 %0\n");
    EXPECT_THROW(compiler().compile(kernel, {{64}, {1, 1}}, 75), runtime::DeviceError);
}

}}  // namespace megjit::halide_backend
