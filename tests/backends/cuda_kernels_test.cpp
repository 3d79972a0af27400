// On a GPU, or an emulated one: kernels of every compiler, against the interpreter.
#include <gtest/gtest.h>

#include "codegen/checked_kernel.h"
#include "codegen/kernel_device.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "tests/backends/cuda_testing.h"
#include "tests/backends/gpu_cases.h"
#ifdef MEGJIT_MLIR_PLUGIN
#include "backends/mlir/gpu_compiler.h"
#endif
#ifdef MEGJIT_HALIDE_PLUGIN
#include "backends/halide/gpu_compiler.h"
#endif

namespace megjit::cuda { namespace {

using namespace codegen;

class CudaKernels : public CudaDeviceTest {
protected:
    static void SetUpTestSuite() {
        CudaDeviceTest::SetUpTestSuite();
        [[maybe_unused]] KernelService& service = KernelService::instance();
#ifdef MEGJIT_MLIR_PLUGIN
        service.add(std::make_unique<mlir_backend::MlirGpuCompiler>(MEGJIT_MLIR_PLUGIN));
#endif
#ifdef MEGJIT_HALIDE_PLUGIN
        service.add(std::make_unique<halide_backend::HalideGpuCompiler>(MEGJIT_HALIDE_PLUGIN));
#endif
    }

    void* copy_of(const void* data, size_t bytes) {
        void* there = gpu().allocator().allocate(bytes);
        gpu().stream().upload(there, data, bytes);
        return there;
    }

    std::string fault_of(const GpuCase& test) {
        Case c = test.data;
        const auto code = KernelService::instance().get({c.kernel, gpu().target(), c.launch});
        const auto kernel =
            codegen::kernel_device(gpu()).prepare_kernel(c.kernel, {c.launch}, code.get());
        std::vector<void*> inputs, outputs;
        for (const auto& input : c.inputs) inputs.push_back(copy_of(input.data(), input.size()));
        const auto want = c.expected();
        for (const auto& output : want) outputs.push_back(copy_of(output.data(), output.size()));
        for (size_t k = 0; k < want.size(); ++k) {  // so that nothing right is there before
            const std::vector<char> zeros(want[k].size());
            gpu().stream().upload(outputs[k], zeros.data(), zeros.size());
        }
        kernel->enqueue(gpu().stream(), inputs.data(), outputs.data(), nullptr);
        std::string fault;
        for (size_t k = 0; k < want.size() && fault.empty(); ++k) {
            std::vector<char> got(want[k].size());
            gpu().stream().download(got.data(), outputs[k], got.size());
            gpu().stream().synchronize();
            fault = test.fault_of(k, got, want[k]);
        }
        for (size_t k = 0; k < inputs.size(); ++k)
            gpu().allocator().release(inputs[k], c.inputs[k].size());
        for (size_t k = 0; k < outputs.size(); ++k)
            gpu().allocator().release(outputs[k], want[k].size());
        return fault;
    }
};

// Without a compiler, images that were made elsewhere are taken from the cache.
TEST_F(CudaKernels, AgreeWithTheInterpreter) {
    std::vector<GpuCase> cases = handmade_gpu_cases();
    for (GpuCase& c : random_gpu_cases(3000, 3060)) cases.push_back(std::move(c));
    for (const std::string backend : {"NVRTC", "MLIR", "HALIDE"}) {
        setenv("MGB_JIT_BACKEND", backend.c_str(), 1);
        runtime::reload_debug();
        for (const GpuCase& test : cases)
            EXPECT_EQ(fault_of(test), "") << backend << ": " << test.name << "\n"
                                          << print(test.data.kernel);
    }
    unsetenv("MGB_JIT_BACKEND");
    runtime::reload_debug();
}

// Leaves its results as they are.
class Idle final : public Executable {
public:
    void enqueue(Stream&, void* const*, void* const*, void*) const override {}
};

TEST_F(CudaKernels, AWrongOneIsFoundByItsCheck) {
    const Case c = broadcast_case(DType::f32, 3, 8);
    const std::vector<char> zeros(3 * 8 * 4);
    CheckedLaunch launch{.kernel = c.kernel,
                         .launches = {c.launch},
                         .name = "the kernel",
                         .output_bytes = {zeros.size()},
                         .shares_rows = true};
    std::vector<void*> inputs;
    for (const auto& input : c.inputs) {
        inputs.push_back(copy_of(input.data(), input.size()));
        launch.input_bytes.push_back(input.size());
    }
    void* const output = copy_of(zeros.data(), zeros.size());
    const auto run = [&](std::shared_ptr<const Executable> kernel) {
        checked(std::move(kernel), launch)
            ->enqueue(gpu().stream(), inputs.data(), &output, nullptr);
    };
    const auto code = KernelService::instance().get({c.kernel, gpu().target(), c.launch});
    const auto kernel =
        codegen::kernel_device(gpu()).prepare_kernel(c.kernel, {c.launch}, code.get());
    EXPECT_THROW(run(std::make_shared<Idle>()), InternalError);
    EXPECT_NO_THROW(run(kernel));
    for (size_t k = 0; k < inputs.size(); ++k)
        gpu().allocator().release(inputs[k], launch.input_bytes[k]);
    gpu().allocator().release(output, zeros.size());
}

}}  // namespace megjit::cuda
