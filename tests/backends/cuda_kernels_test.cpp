// On a GPU: kernels of every compiler, against the interpreter.
#include <gtest/gtest.h>

#include "backends/cuda/launcher.h"
#include "backends/nvrtc/compiler.h"
#include "runtime/error.h"
#include "tests/backends/gpu_cases.h"
#ifdef MEGJIT_MLIR_PLUGIN
#include "backends/mlir/gpu_compiler.h"
#endif

namespace megjit::cuda { namespace {

using namespace codegen;

class CudaKernels : public testing::Test {
protected:
    void SetUp() override {
        try {
            driver_ = std::make_unique<CudaDriver>();
            gpu_ = std::make_unique<Gpu>(*driver_);
        } catch (const runtime::DeviceError& error) { GTEST_SKIP() << error.what(); }
        service_.add(std::make_unique<nvrtc::NvrtcCompiler>());
#ifdef MEGJIT_MLIR_PLUGIN
        service_.add(std::make_unique<mlir_backend::MlirGpuCompiler>(MEGJIT_MLIR_PLUGIN));
#endif
    }

    std::string fault_of(const GpuCase& test, std::string_view backend) {
        Case c = test.data;
        const CudaLauncher launcher(
            *gpu_, service_.get({c.kernel, gpu_->arch(), c.launch}, backend)->image, c.kernel);
        std::vector<Buffer> buffers;
        std::vector<Address> inputs, outputs;
        for (const auto& input : c.inputs) {
            inputs.push_back(buffers.emplace_back(*gpu_, input.size()).address());
            gpu_->upload(inputs.back(), input.data(), input.size());
        }
        const auto want = c.expected();
        for (const auto& output : want) {
            outputs.push_back(buffers.emplace_back(*gpu_, output.size()).address());
            gpu_->clear(outputs.back(), output.size());
        }
        launcher.launch(c.launch, inputs, outputs);
        for (size_t k = 0; k < want.size(); ++k) {
            std::vector<char> got(want[k].size());
            gpu_->download(got.data(), outputs[k], got.size());
            if (std::string fault = test.fault_of(k, got, want[k]); !fault.empty()) return fault;
        }
        return "";
    }

    std::unique_ptr<CudaDriver> driver_;
    std::unique_ptr<Gpu> gpu_;
    KernelService service_;
};

// Without a compiler, images that were made elsewhere are taken from the cache.
TEST_F(CudaKernels, AgreeWithTheInterpreter) {
    std::vector<GpuCase> cases = handmade_gpu_cases();
    for (GpuCase& c : random_gpu_cases(3000, 3100)) cases.push_back(std::move(c));
    std::vector<std::string_view> backends = service_.backends(true);
    if (backends.empty()) backends = {""};
    try {
        for (std::string_view backend : backends)
            for (const GpuCase& test : cases)
                EXPECT_EQ(fault_of(test, backend), "") << backend << ": " << test.name << "\n"
                                                       << print(test.data.kernel);
    } catch (const runtime::UserError& error) { GTEST_SKIP() << error.what(); }
}

}}  // namespace megjit::cuda
