// Kernels for GPUs, run on the host: the LLVM IR that becomes PTX, with an emulation for what only
// a GPU has.
#include <gtest/gtest.h>

#include "backends/mlir/gpu_compiler.h"
#include "runtime/error.h"
#include "tests/backends/fenced.h"
#include "tests/backends/gpu_cases.h"
#include "tests/backends/mlir_emulation.h"

namespace megjit::mlir_backend { namespace {

using namespace codegen;

class MlirEmulation : public testing::Test {
protected:
    // Runs a kernel and compares; "" or what is wrong.
    static std::string fault_of(const GpuCase& test) {
        static HostKernels* host = new HostKernels;
        const Case& c = test.data;
        std::vector<Fenced> memory;
        std::vector<uint64_t> inputs, outputs;
        for (const auto& input : c.inputs) {
            std::memcpy(memory.emplace_back(input.size()).data(), input.data(), input.size());
            inputs.push_back(reinterpret_cast<uint64_t>(memory.back().data()));
        }
        for (size_t k = 0; k < c.kernel.outputs.size(); ++k) {
            memory.emplace_back(c.output_bytes(k) + 1);
            outputs.push_back(reinterpret_cast<uint64_t>(memory.back().data()));
        }
        const GpuPlan plan = mlir_gpu_plan_of(c.kernel, c.launch);
        const GpuImage image = mlir_gpu_image_of(plan);
        const Grid grid = grid_of(image, c.kernel, c.launch);
        HostKernels::launch(host->compile(legalize(c.kernel), plan), grid.blocks, image.block[0],
                            parameters_of(image, c.launch, inputs, outputs).data());
        const auto want = Case(c).expected();
        for (size_t k = 0; k < outputs.size(); ++k) {
            const char* data = memory[inputs.size() + k].data();
            const std::vector<char> got(data, data + want[k].size());
            if (std::string fault = test.fault_of(k, got, want[k]); !fault.empty()) return fault;
        }
        return "";
    }

    static void expect_agreement(const std::vector<GpuCase>& cases) {
        for (const GpuCase& test : cases)
            ASSERT_EQ(fault_of(test), "")
                << test.name << ", " << print(mlir_gpu_plan_of(test.data.kernel, test.data.launch))
                << "\n"
                << print(test.data.kernel);
    }
};

TEST_F(MlirEmulation, AgreesWithTheInterpreterOnRandomKernels) {
    expect_agreement(random_gpu_cases(2000, 2060));
}

TEST_F(MlirEmulation, AgreesWithTheInterpreterOnHandmadeKernels) {
    expect_agreement(handmade_gpu_cases());
}

// Remainders of numbers that lie anywhere in f32, denormals and specials among them.
TEST_F(MlirEmulation, TakesExactRemainders) {
    constexpr int64_t kCount = 200000;
    ScalarProgram program;
    const Expr x(&program, program.input(0, ScalarType::f32)),
        y(&program, program.input(1, ScalarType::f32));
    const int result = make(ScalarOp::mod, {x, y}).id();
    const std::vector<Type> inputs = {{DType::f32, {kCount}}, {DType::f32, {kCount}}};
    Case c = with_data(bind(std::move(program), {result}, {DType::f32}, {kCount}, inputs), 7);
    Random random(11);
    for (auto& input : c.inputs)
        for (size_t at = 0; at < input.size(); at += 4) {
            const auto bits = static_cast<uint32_t>(random.range(0, UINT32_MAX));
            if (random.range(0, 15))
                std::memcpy(input.data() + at, &bits, 4);  // else one of with_data's
        }
    EXPECT_EQ(fault_of({"remainders", c}), "");
}

}}  // namespace megjit::mlir_backend
