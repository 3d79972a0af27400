#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "codegen/compiler.h"
#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::codegen {
namespace {

namespace fs = std::filesystem;

void fake_kernel(void* const*, void* const*, const int64_t*, const int64_t*, int64_t, int64_t) {}

struct FakeCompiler : KernelCompiler {
    int* compiled;
    bool fails_to_load = false;
    explicit FakeCompiler(int* compiled) : compiled(compiled) {}
    std::string_view name() const override { return "MLIR"; }
    std::string version_key() const override { return "1"; }
    std::string compile(const KernelIR& kernel) override {
        ++*compiled;
        return "object of " + print(kernel);
    }
    KernelFn load(const std::string& object) override {
        if (!object.starts_with("object of ")) throw runtime::DeviceError("not an object");
        return fake_kernel;
    }
    std::string source(const KernelIR&) override { return "source"; }
};

KernelIR kernel_that_adds(double number) {
    KernelIR kernel;
    kernel.inputs = {{}};
    kernel.results = {(runtime::Expr(&kernel.program, kernel.program.input(0, runtime::ScalarType::f32)) + number).id()};
    kernel.outputs = {{runtime::DType::f32}};
    return kernel;
}

class ServiceTest : public testing::Test {
protected:
    ServiceTest() {
        std::string name = fs::temp_directory_path() / "megjit-service-XXXXXX";
        folder_ = ::mkdtemp(name.data());
        ::setenv("MEGJIT_CACHE_DIR", folder_.c_str(), 1);
        choose(nullptr);
    }
    ~ServiceTest() override {
        choose(nullptr);
        ::unsetenv("MEGJIT_CACHE_DIR");
        fs::remove_all(folder_);
    }
    static void choose(const char* backend) {
        if (backend) ::setenv("MGB_JIT_BACKEND", backend, 1);
        else ::unsetenv("MGB_JIT_BACKEND");
        runtime::reload_debug();
    }
    std::unique_ptr<KernelService> service() {
        auto made = std::make_unique<KernelService>();
        made->add(std::make_unique<FakeCompiler>(&compiled_));
        return made;
    }

    fs::path folder_;
    int compiled_ = 0;
};

TEST_F(ServiceTest, CompilesAKernelOnce) {
    const auto service = this->service();
    EXPECT_FALSE(service->get(kernel_that_adds(1))->cached);
    EXPECT_TRUE(service->get(kernel_that_adds(1))->cached);
    EXPECT_EQ(compiled_, 1);
    EXPECT_EQ(service->counters().memory_hits, 1);
}

TEST_F(ServiceTest, FindsWhatAnotherProcessCompiled) {
    service()->get(kernel_that_adds(1));
    const auto later = service();
    EXPECT_TRUE(later->get(kernel_that_adds(1))->cached);
    EXPECT_EQ(compiled_, 1);
    EXPECT_EQ(later->counters().disk_hits, 1);
}

TEST_F(ServiceTest, CompilesAgainWhenTheFileIsBroken) {
    service()->get(kernel_that_adds(1));
    for (const auto& file : fs::directory_iterator(folder_)) fs::resize_file(file, 10);
    EXPECT_FALSE(service()->get(kernel_that_adds(1))->cached);
    EXPECT_EQ(compiled_, 2);
}

TEST_F(ServiceTest, ForgetsTheLeastRecentlyUsed) {
    const auto service = this->service();
    for (size_t i = 0; i <= KernelService::kMaxKernels; ++i) service->get(kernel_that_adds(static_cast<double>(i) + 2));
    service->get(kernel_that_adds(3));
    EXPECT_EQ(service->counters().memory_hits, 1);
    service->get(kernel_that_adds(2));
    EXPECT_EQ(service->counters().disk_hits, 1);
}

TEST_F(ServiceTest, ServesManyThreads) {
    const auto service = this->service();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i) service->get(kernel_that_adds(i + 2));
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(compiled_, 50);
}

TEST_F(ServiceTest, ABackendForGpusIsReplacedWithOneWarning) {
    choose("NVRTC");
    testing::internal::CaptureStderr();
    const auto service = this->service();
    EXPECT_EQ(service->get(kernel_that_adds(1))->backend, "MLIR");
    service->get(kernel_that_adds(2));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "megjit: warning: kernel compiler NVRTC serves GPUs only; MLIR is used\n");
}

TEST_F(ServiceTest, AnUnknownBackendIsRefusedWithTheValidOnes) {
    choose("TVM");
    try {
        service()->get(kernel_that_adds(1));
        FAIL() << "TVM was taken";
    } catch (const runtime::UserError& error) {
        EXPECT_EQ(error.kind, runtime::ErrorKind::value);
        for (const char* word : {"NVRTC", "HALIDE", "MLIR", "TVM"}) EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word;
    }
}

TEST_F(ServiceTest, WithoutCompilersSaysWhatToDo) {
    KernelService empty;
    EXPECT_FALSE(empty.can_compile());
    try {
        empty.get(kernel_that_adds(1));
        FAIL() << "compiled by nobody";
    } catch (const runtime::UserError& error) {
        EXPECT_NE(std::string(error.what()).find("no kernel compiler is installed"), std::string::npos);
    }
}

}  // namespace
}  // namespace megjit::codegen
