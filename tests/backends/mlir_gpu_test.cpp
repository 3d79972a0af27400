// Kernels as PTX. No GPU is needed; what the PTX computes is tested on the emulated card
// (cuda_kernels_test.cpp).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backends/mlir/gpu_compiler.h"
#include "runtime/host/error.h"
#include "tests/backends/gpu_cases.h"
#include "tests/backends/ptxas.h"

namespace megjit::mlir_backend { namespace {

namespace fs = std::filesystem;
using namespace codegen;

MlirGpuCompiler& compiler() {
    static MlirGpuCompiler* compiler = new MlirGpuCompiler(MEGJIT_MLIR_PLUGIN);
    return *compiler;
}

std::string ptx_of(const Case& c, int arch) {
    return compiler().compile(legalize(c.kernel), c.launch, arch).code;
}

size_t count_of(const std::string& text, const std::string& part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++count;
    return count;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// x `op` y, or `op` of x, y and z.
Case one_instruction(ScalarOp op) {
    ScalarProgram program;
    std::vector<Expr> operands;
    std::vector<Type> inputs;
    for (int i = 0; i < arity_of(op); ++i) {
        operands.push_back(Expr(&program, program.input(i, ScalarType::f32)));
        inputs.push_back({DType::f32, {64}});
    }
    const int result = op == ScalarOp::fma ? make(op, {operands[0], operands[1], operands[2]}).id()
                       : operands.size() == 2 ? make(op, {operands[0], operands[1]}).id()
                                              : make(op, {operands[0]}).id();
    return with_data(bind(std::move(program), {result}, {DType::f32}, {64}, inputs), 1);
}

TEST(MlirGpu, CompilesKernelsForEveryArchitecture) {
    std::vector<GpuCase> cases = handmade_gpu_cases();
    for (GpuCase& c : random_gpu_cases(2000, 2060)) cases.push_back(std::move(c));
    for (size_t i = 0; i < cases.size(); ++i) {
        const auto& [name, c] = cases[i];
        const int arch = std::vector<int>{80, 90, 100}[i % 3];
        const GpuImage image = compiler().compile(legalize(c.kernel), c.launch, arch);
        EXPECT_TRUE(image.is_ptx) << name;
        EXPECT_TRUE(contains(image.code, cat(".target sm_", arch, "\n"))) << name;
        EXPECT_TRUE(contains(image.code, ".visible .entry megjit_kernel(")) << name;
        const std::vector<uint64_t> addresses(c.kernel.outputs.size());
        const auto words = parameters_of(image, c.launch,
                                         std::vector<uint64_t>(memory_inputs(c.kernel)), addresses);
        EXPECT_EQ(count_of(image.code, "\t.param .u64 "), words.size()) << name;
        EXPECT_TRUE(contains(image.code, cat(".maxntid ", image.block[0], ", 1, 1"))) << name;
        EXPECT_FALSE(contains(image.code, ".extern")) << name;  // neither libdevice nor libm
        EXPECT_FALSE(contains(image.code, ".ftz")) << name;
        EXPECT_FALSE(contains(image.code, ".approx")) << name;
    }
}

TEST(MlirGpu, NothingIsSpilled) {
    if (!ptxas()) GTEST_SKIP() << "MEGJIT_PTXAS names no assembler: pip install nvidia-cuda-nvcc";
    for (int arch : {80, 90, 100})
        for (const GpuCase& c : handmade_gpu_cases())
            EXPECT_EQ(resources_of(ptx_of(c.data, arch), arch).spilled_bytes, 0)
                << c.name << " sm_" << arch;
}

// Each rounds by itself, and is marked so: what is not marked the driver may contract.
TEST(MlirGpu, RoundsAsIeeeSays) {
    const std::string sum_of_product = ptx_of(broadcast_case(DType::f32, 7, 64), 90);
    EXPECT_TRUE(contains(sum_of_product, "mul.rn.f32"));
    EXPECT_TRUE(contains(sum_of_product, "add.rn.f32"));
    EXPECT_FALSE(contains(sum_of_product, "fma."));
    for (int arch : {80, 90, 100}) {
        EXPECT_TRUE(contains(ptx_of(one_instruction(ScalarOp::div), arch), "div.rn.f32"));
        EXPECT_TRUE(contains(ptx_of(one_instruction(ScalarOp::sqrt), arch), "sqrt.rn.f32"));
        EXPECT_TRUE(contains(ptx_of(one_instruction(ScalarOp::fma), arch), "fma.rn.f32"));
    }
}

TEST(MlirGpu, LoadsNeighboursTogether) {
    EXPECT_TRUE(contains(ptx_of(broadcast_case(DType::f32, 7, 64), 90), "ld.global.v4.b32"));
    EXPECT_TRUE(contains(ptx_of(broadcast_case(DType::f32, 7, 64), 90), "st.global.v4.b32"));
    EXPECT_TRUE(contains(ptx_of(broadcast_case(DType::f16, 7, 64), 90), "ld.global.v4.b32"));
    EXPECT_FALSE(contains(ptx_of(broadcast_case(DType::f32, 7, 35), 90), "ld.global.v4"));
}

TEST(MlirGpu, OneImageServesLaunchesOfOnePlan) {
    const Case a = broadcast_case(DType::f32, 7, 64), b = broadcast_case(DType::f32, 9, 128);
    const Case odd = broadcast_case(DType::f32, 7, 35);
    EXPECT_EQ(compiler().variant(a.kernel, a.launch, 90),
              compiler().variant(b.kernel, b.launch, 90));
    EXPECT_NE(compiler().variant(a.kernel, a.launch, 90),
              compiler().variant(odd.kernel, odd.launch, 90));
}

TEST(MlirGpu, TakesTheNewestArchitectureBeforeOneItDoesNotKnow) {
    EXPECT_TRUE(contains(ptx_of(broadcast_case(DType::f32, 7, 64), 95), ".target sm_90\n"));
    EXPECT_THROW(ptx_of(broadcast_case(DType::f32, 7, 64), 50), runtime::DeviceError);
}

TEST(MlirGpu, ShowsReadableCode) {
    const Case c = broadcast_case(DType::f32, 7, 64);
    EXPECT_TRUE(contains(compiler().source(legalize(c.kernel), c.launch, 90),
                         "define ptx_kernel void @megjit_kernel("));
}

TEST(MlirGpu, RefusesMoreParametersThanALaunchTakes) {
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
    EXPECT_THROW(compiler().compile(kernel, launch, 90), runtime::DeviceError);
}

TEST(MlirGpu, AssemblesWithPtxas) {
    const fs::path ptxas = "/usr/local/cuda/bin/ptxas";
    if (access(ptxas.c_str(), X_OK) != 0) GTEST_SKIP() << ptxas << " is not installed";
    std::string folder = fs::temp_directory_path() / "megjit-ptx-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    std::vector<GpuCase> cases = handmade_gpu_cases();
    for (GpuCase& c : random_gpu_cases(2000, 2020)) cases.push_back(std::move(c));
    for (size_t i = 0; i < cases.size(); i += 5) {
        const int arch = std::vector<int>{80, 90, 100}[i % 3];
        std::ofstream(fs::path(folder) / "kernel.ptx") << ptx_of(cases[i].data, arch);
        const std::string command = cat(ptxas.string(), " -arch=sm_", arch, " -o ", folder,
                                        "/kernel.cubin ", folder, "/kernel.ptx");
        EXPECT_EQ(std::system(command.c_str()), 0) << cases[i].name;
    }
    fs::remove_all(folder);
}

}}  // namespace megjit::mlir_backend
