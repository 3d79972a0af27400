#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "codegen/compiler.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"

namespace megjit::codegen { namespace {

namespace fs = std::filesystem;

KernelIR kernel_of_rank(int rank, int reduced = 0, Lanes lanes = Lanes::last) {
    KernelIR kernel;
    kernel.rank = rank;
    kernel.reduced = reduced;
    kernel.lanes = lanes;
    return kernel;
}

TEST(GpuImage, ComesBackFromItsBytes) {
    const GpuImage image{.code = std::string("\0ELF", 4),
                         .is_ptx = true,
                         .entry = "f",
                         .cover = Cover::columns,
                         .per_block = 32,
                         .rows_per_block = 2,
                         .block = {32, 8, 1},
                         .shared_bytes = 7,
                         .parts = 2,
                         .part_bytes = 8,
                         .alignment = 4,
                         .parameters = Parameters::pointers,
                         .pointers = {2, 0, 1}};
    EXPECT_EQ(image_from_bytes(to_bytes(image)), image);
}

TEST(GpuImage, RefusesEveryPrefixOfItsBytes) {
    const std::string bytes = to_bytes({.code = "code", .pointers = {0}});
    for (size_t size = 0; size < bytes.size(); ++size)
        EXPECT_FALSE(image_from_bytes(bytes.substr(0, size))) << size;
    EXPECT_FALSE(image_from_bytes(bytes + "x"));
}

TEST(GpuImage, CoversElements) {
    const GpuImage image{.cover = Cover::elements, .per_block = 1024};
    EXPECT_EQ(grid_of(image, kernel_of_rank(2), {{3, 1000}, {}}).blocks[0], 3u);
    EXPECT_EQ(grid_of(image, kernel_of_rank(1), {{0}, {}}).blocks[0], 0u);
    EXPECT_EQ(grid_of(image, kernel_of_rank(1), {{int64_t{1} << 40}, {}}).blocks[0], kMaxBlocks);
}

TEST(GpuImage, CoversRowsAndColumns) {
    EXPECT_EQ(
        grid_of({.cover = Cover::rows, .per_block = 8}, kernel_of_rank(3, 1), {{5, 5, 100}, {}})
            .blocks[0],
        4u);
    EXPECT_EQ(grid_of({.cover = Cover::rows, .per_block = 8}, kernel_of_rank(1, 1), {{100}, {}})
                  .blocks[0],
              1u);
    EXPECT_EQ(grid_of({.cover = Cover::columns, .per_block = 32}, kernel_of_rank(3, 1, Lanes::kept),
                      {{5, 33, 100}, {}})
                  .blocks[0],
              10u);
    EXPECT_EQ(grid_of({.cover = Cover::columns, .per_block = 32}, kernel_of_rank(2, 1, Lanes::kept),
                      {{0, 100}, {}})
                  .blocks[0],
              0u);
    const GpuImage tiles{.cover = Cover::tiles, .per_block = 64, .rows_per_block = 16};
    EXPECT_EQ(grid_of(tiles, kernel_of_rank(4, 1, Lanes::tiles), {{3, 17, 65, 9}, {}}).blocks[0],
              12u);
    EXPECT_EQ(grid_of(tiles, kernel_of_rank(3, 1, Lanes::tiles), {{17, 0, 9}, {}}).blocks[0], 0u);
    EXPECT_THROW(grid_of({.cover = Cover::rows, .per_block = 1}, kernel_of_rank(2, 1),
                         {{int64_t{1} << 31, 2}, {}}),
                 runtime::DeviceError);
}

TEST(GpuImage, PacksAllParametersOrPointersAlone) {
    const LaunchShape launch{{10}, {1, 0}};
    const uint64_t in[] = {0x100}, out[] = {0x200};
    EXPECT_EQ(parameters_of({}, launch, in, out), (std::vector<uint64_t>{0x100, 0x200, 10, 1, 0}));
    EXPECT_EQ(
        parameters_of({.parameters = Parameters::pointers, .pointers = {1, 0}}, launch, in, out),
        (std::vector<uint64_t>{0x200, 0x100}));
    const uint64_t shared[] = {0x300, 0x400};
    EXPECT_EQ(parameters_of({.parts = 2}, launch, in, out, shared),
              (std::vector<uint64_t>{0x100, 0x200, 10, 1, 0, 0x300, 0x400}));
    const uint64_t odd[] = {0x104};
    EXPECT_THROW(parameters_of({}, launch, odd, out), runtime::InternalError);
}

struct FakeGpuCompiler : GpuCompiler {
    std::string_view called;
    int* compiled;
    FakeGpuCompiler(std::string_view called, int* compiled) : called(called), compiled(compiled) {}
    std::string_view name() const override { return called; }
    bool is_available = true;
    std::string missing() const override { return is_available ? "" : "it lacks its library"; }
    std::string version_key() const override { return is_available ? "1" : "unknown"; }
    std::string variant(const KernelIR&, const LaunchShape& launch, CodeTarget) const override {
        return launch.numel() % 4 ? "odd" : "even";
    }
    GpuImage compile(const KernelIR&, const LaunchShape&, CodeTarget) override {
        ++*compiled;
        return {.code = std::string(called)};
    }
    std::string source(const KernelIR&, const LaunchShape&, CodeTarget) override {
        return "source";
    }
};

class GpuKernels : public testing::Test {
protected:
    GpuKernels() {
        std::string name = fs::temp_directory_path() / "megjit-gpu-XXXXXX";
        folder_ = ::mkdtemp(name.data());
        ::setenv("MEGJIT_CACHE_DIR", folder_.c_str(), 1);
        kernel_.inputs = {{}};
        kernel_.results = {kernel_.program.input(0, runtime::ScalarType::f32)};
        kernel_.outputs = {{runtime::DType::f32}};
    }
    ~GpuKernels() override {
        ::unsetenv("MEGJIT_CACHE_DIR");
        fs::remove_all(folder_);
    }
    std::unique_ptr<KernelService> service(std::initializer_list<std::string_view> compilers) {
        auto service = std::make_unique<KernelService>();
        for (std::string_view name : compilers)
            service->add(std::make_unique<FakeGpuCompiler>(name, &compiled_));
        return service;
    }
    KernelJob job(int64_t length, int arch) const { return {kernel_, arch, {{length}, {1, 1}}}; }
    KernelIR kernel_;
    fs::path folder_;
    int compiled_ = 0;
};

TEST_F(GpuKernels, LaunchesOfOneVariantShareAnImage) {
    const auto service = this->service({"NVRTC"});
    EXPECT_EQ(service->get(job(4, 90))->image, service->get(job(8, 90))->image);
    EXPECT_NE(service->get(job(5, 90))->image, service->get(job(8, 90))->image);
    EXPECT_NE(service->get(job(4, 80))->image, service->get(job(4, 90))->image);
    EXPECT_EQ(compiled_, 3);
}

TEST_F(GpuKernels, FindsWhatAnotherProcessCompiled) {
    const auto first = service({"NVRTC"})->get(job(4, 90))->image;
    EXPECT_EQ(*service({"NVRTC"})->get(job(4, 90))->image, *first);
    EXPECT_EQ(compiled_, 1);
}

TEST_F(GpuKernels, FindsWhatWasImportedWhereThereIsNoCompiler) {
    const auto image = service({"NVRTC"})->get(job(4, 90))->image;
    KernelService bare;
    auto missing = std::make_unique<FakeGpuCompiler>("NVRTC", &compiled_);
    missing->is_available = false;
    bare.add(std::move(missing));
    EXPECT_EQ(*bare.get(job(4, 90))->image, *image);
    EXPECT_THROW(bare.get(job(5, 90))->image, runtime::UserError);
    EXPECT_THROW(bare.get(job(4, 80))->image, runtime::UserError);
}

TEST_F(GpuKernels, TakesTheNamedCompilerOrItsDefault) {
    const auto service = this->service({"MLIR", "NVRTC"});
    EXPECT_EQ(service->get(job(4, 90))->image->code, "NVRTC");
    EXPECT_EQ(service->get(job(4, 90), "MLIR")->image->code, "MLIR");
    testing::internal::CaptureStderr();
    EXPECT_EQ(service->get(job(4, 90), "HALIDE")->image->code, "NVRTC");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "megjit: warning: kernel compiler HALIDE was not built in; NVRTC is used\n");
    EXPECT_THROW(service->get(job(4, 90), "TVM")->image, runtime::UserError);
    EXPECT_THROW(this->service({})->get(job(4, 90))->image, runtime::UserError);
}

TEST_F(GpuKernels, SaysWhatTheNamedCompilerLacks) {
    const auto service = this->service({"NVRTC"});
    auto missing = std::make_unique<FakeGpuCompiler>("MLIR", &compiled_);
    missing->is_available = false;
    service->add(std::move(missing));
    testing::internal::CaptureStderr();
    EXPECT_EQ(service->get(job(4, 90), "MLIR")->image->code, "NVRTC");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "megjit: warning: kernel compiler MLIR: it lacks its library; NVRTC is used\n");
}

TEST_F(GpuKernels, AreNoneOfTheHost) {
    const auto service = this->service({"MLIR"});
    EXPECT_EQ(service->backends(true), std::vector<std::string_view>{"MLIR"});
    EXPECT_TRUE(service->backends().empty());
    EXPECT_FALSE(service->can_compile());
    EXPECT_THROW(service->get(kernel_), runtime::UserError);
    EXPECT_EQ(service->get(job(4, 90))->fn, nullptr);
}

}}  // namespace megjit::codegen
