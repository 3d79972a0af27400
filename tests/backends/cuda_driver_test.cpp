#include <dlfcn.h>
#include <gtest/gtest.h>

#include "backends/cuda/launcher.h"
#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::cuda { namespace {

using namespace codegen;
using runtime::DeviceError;

// The text of the DeviceError that `body` throws.
template <class Body>
std::string error_of(const Body& body) {
    try {
        body();
    } catch (const DeviceError& error) { return error.what(); }
    return "no error";
}

class CudaMock : public testing::Test {
protected:
    CudaMock() {
        void* library = dlopen(MEGJIT_CUDA_MOCK, RTLD_NOW | RTLD_LOCAL);
        log_ = reinterpret_cast<const char* (*)()>(dlsym(library, "cuda_mock_log"));
        reset_ = reinterpret_cast<void (*)(const char*, int)>(dlsym(library, "cuda_mock_reset"));
        reset_("", 0);
    }
    ~CudaMock() override { reset_("", 0); }
    std::string log() const { return log_(); }
    static std::shared_ptr<GpuImage> image() {
        auto image = std::make_shared<GpuImage>();
        image->code = "code";
        image->per_block = 1024;
        image->block[0] = 256;
        return image;
    }
    static LaunchShape of(int64_t length) { return {{length}, {1, 1}}; }
    const char* (*log_)();
    void (*reset_)(const char*, int);
};

TEST_F(CudaMock, LoadsAndLaunchesOnItsOwnStream) {
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    {
        const Gpu gpu(driver);
        EXPECT_EQ(gpu.name(), "Mock GPU");
        EXPECT_EQ(gpu.arch(), 90);
        const CudaLauncher launcher(gpu, image(), KernelIR());
        const Address in[] = {0x1000}, out[] = {0x2000};
        launcher.launch(of(2049), in, out);
    }
    EXPECT_EQ(
        log(),
        "cuInit 0\ncuDeviceGet 0\ncuDevicePrimaryCtxRetain 40\ncuStreamCreate 1\n"
        "cuModuleLoadData code\ncuModuleGetFunction 0x30 megjit_kernel\n"
        "cuLaunchKernel 0xf0 3 1 1 256 1 1 0 0x57 4096,8192,2049,1,1,\n"
        "cuModuleUnload 0x30\ncuStreamSynchronize 0x57\ncuStreamDestroy 0x57\ncuDevicePrimaryCtxRelease 40\n");
}

TEST_F(CudaMock, TakesTheDriverThatTheEnvironmentNames) {
    ::setenv("MEGJIT_CUDA_DRIVER", MEGJIT_CUDA_MOCK, 1);
    runtime::reload_debug();
    EXPECT_EQ(CudaDriver().version(), 13000);
    ::unsetenv("MEGJIT_CUDA_DRIVER");
    runtime::reload_debug();
}

TEST_F(CudaMock, LaunchesNothingForNoElements) {
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    const Gpu gpu(driver);
    const CudaLauncher launcher(gpu, image(), KernelIR());
    const Address in[] = {0x1000}, out[] = {0x2000};
    launcher.launch(of(0), in, out);
    EXPECT_EQ(log().find("cuLaunchKernel"), std::string::npos);
}

TEST_F(CudaMock, LaunchesWhatWasMadeForOneLaunch) {
    auto fixed = image();
    fixed->cover = Cover::fixed;
    fixed->grid[1] = 7;
    fixed->parameters = Parameters::pointers;
    fixed->pointers = {1, 0};
    fixed->shared_bytes = 100 << 10;
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    const Gpu gpu(driver);
    const CudaLauncher launcher(gpu, fixed, KernelIR());
    const Address in[] = {0x1000}, out[] = {0x2000};
    launcher.launch(of(2049), in, out);
    EXPECT_NE(
        log().find(
            "cuFuncSetAttribute 0xf0 8 102400\ncuLaunchKernel 0xf0 1 7 1 256 1 1 102400 0x57 8192,4096,\n"),
        std::string::npos)
        << log();
}

TEST_F(CudaMock, GivesMemoryToBlocksThatShareARow) {
    auto parts = image();
    parts->cover = Cover::rows;
    parts->per_block = 1;
    parts->parts = 4;
    parts->part_bytes = 12;
    KernelIR kernel;
    kernel.rank = 2;
    kernel.reduced = 1;
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    const Gpu gpu(driver);
    const CudaLauncher launcher(gpu, parts, kernel);
    reset_("", 0);
    const Address in[] = {0x1000}, out[] = {0x2000};
    for (int64_t rows : {2, 1, 3}) launcher.launch({{rows, 9000}, {9000, 1, 1, 0}}, in, out);
    // Enough for the largest yet; counters start at 0, and kernels leave them so.
    EXPECT_TRUE(log().starts_with(
        "cuMemAlloc 96\ncuMemAlloc 8\ncuMemsetD8 8\ncuLaunchKernel 0xf0 2 4 1 256 1 1 0 0x57 4096,8192,2,9000,9000,1,1,0,"))
        << log();
    EXPECT_NE(log().find("cuLaunchKernel 0xf0 1 4 1"), std::string::npos);
    EXPECT_NE(log().find("cuMemAlloc 144\n"), std::string::npos);
}

TEST_F(CudaMock, CopiesAndMeasures) {
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    const Gpu gpu(driver);
    const Buffer buffer(gpu, 8);
    int64_t from = 42, to = 0;
    gpu.upload(buffer.address(), &from, 8);
    gpu.download(&to, buffer.address(), 8);
    EXPECT_EQ(to, 42);
    EXPECT_TRUE(log().ends_with("cuMemcpyHtoD 8\ncuMemcpyDtoH 8\ncuStreamSynchronize 0x57\n"))
        << log();
    gpu.clear(buffer.address(), 8);
    gpu.download(&to, buffer.address(), 8);
    EXPECT_EQ(to, 0);
    EXPECT_EQ(gpu.milliseconds([] {}), 1.5f);
}

TEST_F(CudaMock, SaysWhichCallFailed) {
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    const Gpu gpu(driver);
    const CudaLauncher launcher(gpu, image(), KernelIR());
    const Address in[] = {0x1000}, out[] = {0x2000};
    reset_("cuLaunchKernel", 999);
    EXPECT_EQ(error_of([&] { launcher.launch(of(1), in, out); }),
              "CUDA: cuLaunchKernel failed: CUDA_ERROR_UNKNOWN (999)");
    reset_("cuLaunchKernel", 12345);
    EXPECT_EQ(error_of([&] { launcher.launch(of(1), in, out); }),
              "CUDA: cuLaunchKernel failed: unknown error (12345)");
}

TEST_F(CudaMock, SaysHowMuchMemoryIsLeft) {
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    const Gpu gpu(driver);
    reset_("cuMemAlloc", 2);
    EXPECT_EQ(error_of([&] { gpu.allocate(3000); }),
              "Mock GPU: out of memory: 3000 bytes were asked for, 1000 of 5000 are free");
}

TEST_F(CudaMock, ShowsTheDriversLogOfWhatDoesNotLoad) {
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    const Gpu gpu(driver);
    reset_("cuModuleLoadData", 999);
    EXPECT_EQ(
        error_of([&] { CudaLauncher(gpu, image(), KernelIR()); }),
        "CUDA: cuModuleLoadDataEx failed: CUDA_ERROR_UNKNOWN (999)\n  Mock GPU (sm_90) does not load a kernel's CUBIN: ptxas: no such instruction");
    reset_("cuModuleGetFunction", 999);
    EXPECT_EQ(error_of([&] { CudaLauncher(gpu, image(), KernelIR()); }),
              "CUDA: cuModuleGetFunction failed: CUDA_ERROR_UNKNOWN (999)");
    EXPECT_TRUE(log().ends_with("cuModuleUnload 0x30\n"));
}

TEST_F(CudaMock, GivesBackTheContextWhenThereIsNoStream) {
    const CudaDriver driver(MEGJIT_CUDA_MOCK);
    reset_("cuStreamCreate", 2);
    EXPECT_EQ(error_of([&] { Gpu gpu(driver); }),
              "CUDA: cuStreamCreate failed: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
    EXPECT_TRUE(log().ends_with("cuDevicePrimaryCtxRelease 40\n"));
}

TEST_F(CudaMock, SaysInPlainWordsThatThereIsNoGpu) {
    reset_("no GPU", 0);
    EXPECT_EQ(error_of([] { CudaDriver driver(MEGJIT_CUDA_MOCK); }), "the CUDA driver sees no GPU");
    EXPECT_TRUE(error_of([] {
        CudaDriver driver("/nowhere/libcuda.so.1");
    }).starts_with("there is no CUDA driver: /nowhere/libcuda.so.1"));
}

}}  // namespace megjit::cuda
