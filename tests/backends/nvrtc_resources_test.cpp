// What the kernels of the battery need on each architecture, as PTX that NVRTC makes and as code
// that ptxas makes of it: registers and shared memory are printed, and nothing may be spilled.
#include <gtest/gtest.h>

#include <iostream>

#include "backends/nvrtc/library.h"
#include "backends/nvrtc/print_kernel.h"
#include "runtime/host/nvidia_libraries.h"
#include "tests/backends/gpu_cases.h"
#include "tests/backends/ptxas.h"

namespace megjit::nvrtc { namespace {

using namespace codegen;

class NvrtcResources : public testing::TestWithParam<int> {};

TEST_P(NvrtcResources, NothingIsSpilled) {
    const Library nvrtc(runtime::candidates_of(runtime::NvidiaLibrary::nvrtc));
    if (!nvrtc.found()) GTEST_SKIP() << nvrtc.why_not();
    if (!ptxas()) GTEST_SKIP() << "MEGJIT_PTXAS names no assembler: pip install nvidia-cuda-nvcc";
    int most = 0;
    for (const GpuCase& c : handmade_gpu_cases()) {
        const KernelIR kernel = legalize(c.data.kernel);
        const std::string text = cat(
            prelude(),
            print_kernel(kernel, gpu_plan_of(kernel, c.data.launch, GetParam()), "megjit_kernel"));
        const Resources needs =
            resources_of(nvrtc.compile(text, cat("compute_", GetParam())), GetParam());
        std::cout << "sm_" << GetParam() << " " << c.name << ": " << needs.registers
                  << " registers, " << needs.shared_bytes << " bytes of shared memory\n";
        EXPECT_GT(needs.registers, 0) << c.name;
        EXPECT_EQ(needs.spilled_bytes, 0) << c.name;
        EXPECT_EQ(needs.stack_bytes, 0) << c.name;
        most = std::max(most, needs.registers);
    }
    EXPECT_LE(most, 128);  // with 256 threads a block, two blocks fit a multiprocessor
}

INSTANTIATE_TEST_SUITE_P(Archs, NvrtcResources,
                         testing::ValuesIn(std::getenv("MEGJIT_LONG")
                                               ? std::vector<int>{80, 90, 100}
                                               : std::vector<int>{90}));

}}  // namespace megjit::nvrtc
