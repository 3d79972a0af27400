// Kernels as CUDA C++, run on the host: one file of all of them, compiled once.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "backends/nvrtc/compiler.h"
#include "backends/nvrtc/print_kernel.h"
#include "runtime/error.h"
#include "tests/backends/fenced.h"
#include "tests/backends/gpu_cases.h"

namespace megjit::nvrtc { namespace {

namespace fs = std::filesystem;
using namespace codegen;

struct Printed {
    GpuCase test;
    GpuPlan plan;
    std::string text;
};

class Emulation : public testing::Test {
protected:
    using Launch = void (*)(const unsigned* grid, unsigned threads, const uint64_t* words);

    static void SetUpTestSuite() {
        printed_ = new std::vector<Printed>;
        std::vector<GpuCase> cases = handmade_gpu_cases();
        for (GpuCase& c : random_gpu_cases(2000, 2110)) cases.push_back(std::move(c));
        for (GpuCase& c : cases) {
            GpuPlan plan = gpu_plan_of(c.data.kernel, c.data.launch);
            plan.wide = printed_->size() % 3 == 0;
            const std::string text =
                print_kernel(legalize(c.data.kernel), plan, cat("kernel_", printed_->size()));
            printed_->push_back({std::move(c), plan, text});
        }
        std::string folder = fs::temp_directory_path() / "megjit-cuda-XXXXXX";
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        compile(folder);
        fs::remove_all(folder);
    }

    static void compile(const fs::path& folder) {
        std::ofstream file(folder / "kernels.cpp");
        file << "#include \"tests/backends/cuda_emulation.h\"\n" << prelude();
        for (size_t i = 0; i < printed_->size(); ++i)
            file
                << (*printed_)[i].text << "extern \"C\" void launch_" << i
                << "(const unsigned* grid, unsigned threads, const uint64_t* words) { emulate(kernel_"
                << i << ", grid, threads, words); }\n";
        file.close();
        const std::string command = cat(
            MEGJIT_CXX,
            " -std=c++20 -O1 -w -ffp-contract=off -fno-strict-aliasing -U_FORTIFY_SOURCE -fPIC -shared -I" MEGJIT_SOURCE_DIR
            " -o ",
            (folder / "kernels.so").string(), " ", (folder / "kernels.cpp").string());
        ASSERT_EQ(std::system(command.c_str()), 0) << command;
        library_ = dlopen((folder / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library_, nullptr) << dlerror();
    }

    // Runs kernel i and compares; "" or what is wrong.
    static std::string fault_of(size_t i) {
        Printed& it = (*printed_)[i];
        Case& c = it.test.data;
        const auto launch = reinterpret_cast<Launch>(dlsym(library_, cat("launch_", i).c_str()));
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
        const GpuImage image = image_of(c.kernel, it.plan);
        const Grid grid = grid_of(image, c.kernel, c.launch);
        std::vector<uint64_t> shared;
        const size_t parts = memory.size();
        if (image.parts > 1)
            for (size_t bytes : {size_t{grid.blocks[0]} * image.parts * image.part_bytes,
                                 size_t{grid.blocks[0]} * 4})
                shared.push_back(reinterpret_cast<uint64_t>(memory.emplace_back(bytes).data()));
        launch(grid.blocks, it.plan.threads,
               parameters_of(image, c.launch, inputs, outputs, shared).data());
        for (size_t x = 0; image.parts > 1 && x < grid.blocks[0]; ++x)
            if (reinterpret_cast<uint32_t*>(memory[parts + 1].data())[x] != 0)
                return "a counter is not 0 again";
        const auto want = c.expected();
        for (size_t k = 0; k < outputs.size(); ++k) {
            const char* data = memory[inputs.size() + k].data();
            if (std::string fault =
                    it.test.fault_of(k, std::vector<char>(data, data + want[k].size()), want[k]);
                !fault.empty())
                return fault;
        }
        return "";
    }

    static std::vector<Printed>* printed_;
    static void* library_;
};
std::vector<Printed>* Emulation::printed_ = nullptr;
void* Emulation::library_ = nullptr;

TEST_F(Emulation, AgreesWithTheInterpreter) {
    for (size_t i = 0; i < printed_->size(); ++i) {
        const Printed& it = (*printed_)[i];
        EXPECT_EQ(fault_of(i), "") << it.test.name << ", " << print(it.plan) << "\n"
                                   << print(it.test.data.kernel) << it.text;
        if (HasFailure()) return;
    }
}

// The cases above meet every form of text.
TEST_F(Emulation, MeetsEveryPlan) {
    for (const char* form :
         {"elements team=1/256 i32 x1", "elements team=1/256 i32 x2", "elements team=1/256 i32 x4",
          "elements team=1/256 i32 x8", "elements team=1/256 i64 x4", "rows team=32/256 i32 x1",
          "rows team=32/256 i32 x2", "rows team=32/256 i32 x4", "rows team=256/256 i32 x8",
          "rows team=1024/1024 i32 x1", "rows team=1024/1024 parts=4 i32 x4",
          "columns team=8/256 i32 x1", "columns team=32/1024 i32 x1",
          "columns team=32/1024 parts=2 i32 x1"})
        EXPECT_TRUE(std::any_of(printed_->begin(), printed_->end(), [&](const Printed& it) {
            std::string plan = print(it.plan);
            if (it.plan.wide && std::string(form).find("i64") == std::string::npos)
                plan.replace(plan.find("i64"), 3, "i32");
            return plan == form;
        })) << form;
}

}}  // namespace megjit::nvrtc
