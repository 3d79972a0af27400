#include <gtest/gtest.h>

#include "backends/nvrtc/compiler.h"
#include "backends/nvrtc/library.h"
#include "codegen/gpu_plan.h"
#include "runtime/host/error.h"
#include "tests/backends/gpu_cases.h"

namespace megjit::nvrtc { namespace {

using namespace codegen;

class NvrtcTest : public testing::Test {
protected:
    void SetUp() override {
        if (!compiler_.available())
            GTEST_SKIP() << "libnvrtc is not installed: pip install nvidia-cuda-nvrtc";
    }
    static bool is_cubin(const std::string& code) { return code.starts_with("\177ELF"); }
    NvrtcCompiler compiler_;
};

TEST_F(NvrtcTest, CompilesKernelsForEveryArchitecture) {
    std::vector<GpuCase> cases = handmade_gpu_cases();
    for (size_t i = cases.size(); i-- > 0;)
        if (i % 5 != 0 && gpu_plan_of(cases[i].data.kernel, cases[i].data.launch, 90).parts == 1)
            cases.erase(cases.begin() + static_cast<ptrdiff_t>(i));
    for (GpuCase& c : random_gpu_cases(2000, 2008)) cases.push_back(std::move(c));
    ASSERT_GE(cases.size(), 20u);
    for (size_t i = 0; i < cases.size(); ++i) {
        const Case& c = cases[i].data;
        const int arch = std::vector<int>{80, 90, 100}[i % 3];
        const GpuImage image = compiler_.compile(legalize(c.kernel), c.launch, arch);
        EXPECT_TRUE(is_cubin(image.code) && !image.is_ptx) << cases[i].name;
        EXPECT_NE(image.code.find("megjit_kernel"), std::string::npos) << cases[i].name;
    }
}

TEST_F(NvrtcTest, GivesPtxForAGpuThatIsTooNew) {
    const Case c = broadcast_case(DType::f32, 7, 64);
    testing::internal::CaptureStderr();
    const GpuImage image = compiler_.compile(legalize(c.kernel), c.launch, 999);
    EXPECT_NE(testing::internal::GetCapturedStderr().find(
                  "does not know sm_999; kernels are compiled for compute_"),
              std::string::npos);
    EXPECT_TRUE(image.is_ptx);
    EXPECT_NE(image.code.find(".entry megjit_kernel"), std::string::npos);
    // Four floats at a time, and nothing contracted.
    EXPECT_NE(image.code.find("ld.global.v4"), std::string::npos);
    EXPECT_NE(image.code.find("st.global.v4"), std::string::npos);
    EXPECT_EQ(image.code.find("fma.rn.f32"), std::string::npos);
}

TEST_F(NvrtcTest, RefusesAGpuThatIsTooOld) {
    const Case c = broadcast_case(DType::f32, 7, 64);
    EXPECT_THROW(compiler_.compile(legalize(c.kernel), c.launch, 20), runtime::DeviceError);
}

TEST_F(NvrtcTest, OneImageServesLaunchesOfOnePlan) {
    const Case a = broadcast_case(DType::f32, 7, 64), b = broadcast_case(DType::f32, 9, 128),
               odd = broadcast_case(DType::f32, 7, 35);
    EXPECT_EQ(compiler_.variant(a.kernel, a.launch, 90), compiler_.variant(b.kernel, b.launch, 90));
    EXPECT_NE(compiler_.variant(a.kernel, a.launch, 90),
              compiler_.variant(odd.kernel, odd.launch, 90));
    Case huge = a;
    huge.launch.extents[0] = int64_t{1} << 32;
    EXPECT_NE(compiler_.variant(a.kernel, a.launch, 90),
              compiler_.variant(huge.kernel, huge.launch, 90));
}

TEST_F(NvrtcTest, SaysWhyATextDoesNotCompile) {
    const Library library(runtime::candidates_of(runtime::NvidiaLibrary::nvrtc));
    try {
        library.compile("this is not C++", "sm_90");
        FAIL() << "compiled";
    } catch (const runtime::DeviceError& error) {
        EXPECT_NE(std::string(error.what()).find("megjit_kernel.cu(1): error"), std::string::npos)
            << error.what();
    }
}

TEST(Nvrtc, IsUnavailableWhereItsLibraryIsNot) {
    NvrtcCompiler compiler({"/nowhere/libnvrtc.so.13"});
    EXPECT_FALSE(compiler.available());
    const Case c = broadcast_case(DType::f32, 7, 64);
    EXPECT_THROW(compiler.compile(c.kernel, c.launch, 90), runtime::DeviceError);
}

TEST(Nvrtc, RefusesMoreParametersThanALaunchTakes) {
    KernelIR kernel;
    kernel.rank = 4;
    LaunchShape launch{{2, 2, 2, 2}, {}};
    for (int i = 0; i < 120; ++i) {
        kernel.inputs.push_back({});
        launch.strides.insert(launch.strides.end(), {8, 4, 2, 1});
    }
    launch.strides.insert(launch.strides.end(), {8, 4, 2, 1});
    kernel.outputs = {{}};
    kernel.results = {kernel.program.input(0, ScalarType::f32)};
    EXPECT_THROW(NvrtcCompiler().source(kernel, launch, 90), runtime::DeviceError);
}

}}  // namespace megjit::nvrtc
