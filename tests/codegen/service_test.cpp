#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "codegen/compiler.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/interrupt.h"

namespace megjit::codegen { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

void fake_kernel(void* const*, void* const*, const int64_t*, const int64_t*, int64_t, int64_t) {}

struct FakeCompiler : KernelCompiler {
    int* compiled;
    std::string fails = "";  // what compile throws
    std::chrono::milliseconds takes{0};  // to compile
    std::function<bool()> until = [] { return true; };  // it has not ended before
    explicit FakeCompiler(int* compiled) : compiled(compiled) {}
    std::string_view name() const override { return "MLIR"; }
    std::string version_key() const override { return "1"; }
    std::string compile(const KernelIR& kernel) override {
        do std::this_thread::sleep_for(takes);
        while (!until());
        if (!fails.empty()) throw runtime::DeviceError(fails);
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
    kernel.results = {
        (runtime::Expr(&kernel.program, kernel.program.input(0, runtime::ScalarType::f32)) + number)
            .id()};
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
    std::unique_ptr<KernelService> service(std::string fails = "",
                                           std::chrono::milliseconds takes = {}) {
        auto made = std::make_unique<KernelService>();
        auto compiler = std::make_unique<FakeCompiler>(&compiled_);
        compiler->fails = std::move(fails);
        compiler->takes = takes;
        made->add(std::move(compiler));
        return made;
    }
    static CompileQueue::Clock::time_point in(std::chrono::milliseconds time) {
        return CompileQueue::Clock::now() + time;
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
    for (size_t i = 0; i <= KernelService::kMaxKernels; ++i)
        service->get(kernel_that_adds(static_cast<double>(i) + 2));
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
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "megjit: warning: kernel compiler NVRTC serves GPUs only; MLIR is used\n");
}

TEST_F(ServiceTest, AnUnknownBackendIsRefusedWithTheValidOnes) {
    choose("TVM");
    try {
        service()->get(kernel_that_adds(1));
        FAIL() << "TVM was taken";
    } catch (const runtime::UserError& error) {
        EXPECT_EQ(error.kind, runtime::ErrorKind::value);
        for (const char* word : {"NVRTC", "HALIDE", "MLIR", "TVM"})
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word;
    }
}

TEST_F(ServiceTest, CompilesBesideTheCaller) {
    const auto service = this->service("", 20ms);
    const auto request = service->request({kernel_that_adds(1)});
    EXPECT_FALSE(request->is_done());
    EXPECT_EQ(service->request({kernel_that_adds(1)}), request) << "compiled twice";
    service->wait({request}, in(10s));
    ASSERT_TRUE(request->is_done());
    EXPECT_FALSE(request->compiled()->cached);
    EXPECT_EQ(compiled_, 1);
}

TEST_F(ServiceTest, WhatIsInMemoryOrOnDiskIsThereAtOnce) {
    const auto first = service();
    first->get(kernel_that_adds(1));
    EXPECT_TRUE(first->request({kernel_that_adds(1)})->is_done());
    const auto request = service()->request({kernel_that_adds(1)});
    ASSERT_TRUE(request->is_done());
    EXPECT_TRUE(request->compiled()->cached);
}

TEST_F(ServiceTest, DoesNotCompileWhatNobodyWaitsForAnyMore) {
    const auto service = this->service("", 30ms);
    auto first = service->request({kernel_that_adds(1)}),
         second = service->request({kernel_that_adds(2)});
    second.reset();
    const auto third = service->request({kernel_that_adds(3)});
    service->wait({first, third}, in(10s));
    EXPECT_EQ(compiled_, 2);
}

TEST_F(ServiceTest, AWaitEndsInTime) {
    const auto service = this->service("", 300ms);
    const auto request = service->request({kernel_that_adds(1)});
    service->wait({request}, in(10ms));
    EXPECT_FALSE(request->is_done());
}

TEST_F(ServiceTest, AWaitCanBeInterrupted) {
    const auto service = this->service("", 300ms);
    const auto request = service->request({kernel_that_adds(1)});
    runtime::set_interrupt_check([] { throw std::string("Ctrl-C"); });
    EXPECT_THROW(service->wait({request}, in(10s)), std::string);
    runtime::set_interrupt_check(nullptr);
    EXPECT_FALSE(request->is_done());
    service->wait({request}, in(10s));
    EXPECT_TRUE(request->compiled()) << "the state stays usable";
}

TEST_F(ServiceTest, AFailureIsToldOnceWithADumpThatReproducesIt) {
    const auto service = this->service("no register left\ndetails");
    testing::internal::CaptureStderr();
    const auto first = service->request({kernel_that_adds(1)}),
               second = service->request({kernel_that_adds(2)});
    service->wait({first, second}, in(10s));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(first->compiled(), nullptr);
    EXPECT_NE(first->error().find("no register left"), std::string::npos);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_NE(said.find("no register left; to see it again"), std::string::npos) << said;
    const size_t path = said.find(folder_.string());
    std::stringstream dump;
    dump << std::ifstream(said.substr(path, said.find('\n') - path)).rdbuf();
    EXPECT_EQ(parse_kernel(dump.str()), kernel_that_adds(1));
    EXPECT_TRUE(service->request({kernel_that_adds(1)})->is_done()) << "tried again";
}

TEST_F(ServiceTest, StopsWithoutWaitingForWhatIsLeft) {
    auto service = std::make_unique<KernelService>();
    auto compiler = std::make_unique<FakeCompiler>(&compiled_);
    compiler->until = [service = service.get()] { return service->is_stopped(); };
    service->add(std::move(compiler));
    KernelRequests requests;
    for (int i = 0; i < 50; ++i) requests.push_back(service->request({kernel_that_adds(i + 1)}));
    service->stop(1s);
    service->wait(requests, in(10s));
    EXPECT_LE(compiled_, 1);
    EXPECT_TRUE(service->request({kernel_that_adds(99)})->is_done());
}

// The fork finds the compiler busy; the child compiles what waited, something new, and runs what it
// knows.
TEST_F(ServiceTest, AForkedChildCompiles) {
    static int compiled = 0;
    auto& service = KernelService::instance();
    auto compiler = std::make_unique<FakeCompiler>(&compiled);
    compiler->takes = 20ms;
    service.add(std::move(compiler));
    service.get(kernel_that_adds(1));
    const auto running = service.request({kernel_that_adds(2)}),
               waiting = service.request({kernel_that_adds(3)});
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::alarm(20);  // a deadlock ends the child
        const auto fresh = service.request({kernel_that_adds(4)});
        service.wait({running, waiting, fresh}, in(10s));
        const bool good = running->is_done() && waiting->is_done() && fresh->is_done() &&
                          service.get(kernel_that_adds(1))->cached;
        ::_exit(good ? 0 : 1);
    }
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
    service.wait({running, waiting}, in(10s));
    EXPECT_TRUE(waiting->is_done());
}

TEST_F(ServiceTest, WithoutCompilersSaysWhatToDo) {
    KernelService empty;
    EXPECT_FALSE(empty.can_compile());
    try {
        empty.get(kernel_that_adds(1));
        FAIL() << "compiled by nobody";
    } catch (const runtime::UserError& error) {
        EXPECT_NE(std::string(error.what()).find("no kernel compiler is installed"),
                  std::string::npos);
    }
}

}}  // namespace megjit::codegen
