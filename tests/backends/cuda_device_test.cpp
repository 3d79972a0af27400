// A GPU, or an emulated one (tests/CMakeLists.txt): what a device promises, graphs, faults and
// failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "backends/cuda/source_kernel.h"
#include "tests/backends/cuda_testing.h"

namespace megjit::cuda { namespace {

using CudaDeviceDeathTest = CudaDeviceTest;  // of an emulated card

TEST_F(CudaDeviceDeathTest, TheHostCannotTouchItsMemory) {
    const TensorRef x = counted(gpu(), 100);
    EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(x->data())), "");
}

TEST_F(CudaDeviceTest, WorkRunsInTheOrderInWhichItIsQueued) {
    TensorRef x = counted(gpu(), 1000), sum = x;
    for (int i = 0; i < 200; ++i) sum = build::add(sum, x);
    const std::vector<float> values = values_of(sum);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 201.0f * static_cast<float>(i));
}

TEST_F(CudaDeviceTest, MemoryIsUsedAgainOnlyByWhatIsQueuedLater) {
    std::vector<TensorRef> kept;
    for (int i = 0; i < 300; ++i) {
        const TensorRef x = counted(gpu(), 5000);
        const TensorRef gone = build::mul(x, 3.0);
        kept.push_back(build::add(gone, static_cast<double>(i)));
    }
    for (size_t i = 0; i < kept.size(); ++i)
        ASSERT_EQ(values_of(kept[i])[4999], 3 * 4999.0f + static_cast<float>(i));
}

TEST_F(CudaDeviceTest, PagesGoBackWhenNothingUsesThemAnyMore) {
    TensorRef sum = counted(gpu(), 1 << 18);
    for (int i = 0; i < 20; ++i) {
        sum = build::add(sum, 1.0);
        gpu().allocator().trim();
    }
    EXPECT_EQ(values_of(sum)[5], 25.0f);
}

// Whoever pinned it: torch's pin_memory(), say.
TEST_F(CudaDeviceTest, PinnedMemoryOfOthersMayChangeWhenAnUploadHasReturned) {
    auto& stream = dynamic_cast<CudaStream&>(gpu().stream());
    const Functions& driver = stream.gpu().driver().call();
    const Entered entered = stream.gpu().enter();
    for (const size_t n :
         {size_t{1} << 10, size_t{3} << 20}) {  // less and more than is staged at once
        void* pinned = nullptr;
        ASSERT_EQ(driver.allocate_host(&pinned, n * sizeof(float), 0), 0);
        auto* numbers = static_cast<float*>(pinned);
        std::vector<TensorRef> tensors;
        for (int round = 0; round < 20; ++round) {
            std::fill_n(numbers, n, static_cast<float>(round));
            tensors.push_back(
                tensor_from_host(gpu(), {.shape = {static_cast<int64_t>(n)}}, numbers));
        }
        for (int round = 0; round < 20; ++round) {
            const std::vector<float> values = values_of(tensors[static_cast<size_t>(round)]);
            ASSERT_EQ(std::ranges::count(values, static_cast<float>(round)),
                      static_cast<std::ptrdiff_t>(n));
        }
        driver.free_host(pinned);
    }
}

TEST_F(CudaDeviceTest, AStreamWaitsForAnother) {
    std::vector<float> back(1 << 16);
    for (int i = 0; i < 50; ++i) {
        const TensorRef x = build::add(counted(gpu(), 1 << 16), static_cast<double>(i));
        Stream &work = gpu().stream(), &copies = gpu().copy_stream();
        copies.wait(work, work.record());
        copies.download(back.data(), x->data(), back.size() * sizeof(float));
        copies.synchronize();
        ASSERT_EQ(back[100], 100.0f + static_cast<float>(i));
    }
}

TEST_F(CudaDeviceTest, ASumOverNoAxisIsTheValue) {
    const float number = 3;
    const TensorRef x = tensor_from_host(gpu(), {.shape = {}}, &number);
    EXPECT_EQ(values_of(build::op("reduce_sum", {x}, {std::vector<int64_t>{}, int64_t{0}}))[0], 3);
}

class CudaDevicesTest : public CudaDeviceTest {
protected:
    void SetUp() override { skip_without(2); }
};

// That of another library, which may use another GPU. Where there was none, gpu0's may stay: the
// CUDA runtime would make it current with its first call.
TEST_F(CudaDevicesTest, TheCallersContextIsCurrentAgainAfterEachCall) {
    const auto gpu_of = [](int index) -> const Gpu& {
        return dynamic_cast<CudaStream&>(gpu(index).stream()).gpu();
    };
    const Functions& driver = gpu_of(0).driver().call();
    for (const Context others : {Context(nullptr), gpu_of(1).context()}) {
        ASSERT_EQ(driver.set_context(others), 0);
        const auto is_theirs = [&] {
            Context now = nullptr;
            return driver.current_context(&now) == 0 &&
                   (now == others || (!others && now == gpu_of(0).context()));
        };
        const TensorRef x = counted(gpu(), 100);
        EXPECT_TRUE(is_theirs());
        const TensorRef rows = build::reshape(x, {10, 10});
        const TensorRef sum = build::add(build::product(rows, rows), 1.0);
        EXPECT_TRUE(is_theirs());
        values_of(sum);
        EXPECT_TRUE(is_theirs());
        const TensorRef there = copied_to(x, gpu(1));
        EXPECT_TRUE(is_theirs());
        gpu().allocator().trim();
        EXPECT_TRUE(is_theirs());
    }
    driver.set_context(nullptr);
}

TEST_F(CudaDevicesTest, ValuesGoFromDeviceToDevice) {
    const TensorRef there = copied_to(build::mul(counted(gpu(0), 10), 2.0), gpu(1));
    EXPECT_EQ(&there->device(), &gpu(1));
    EXPECT_EQ(values_of(build::add(there, 1.0))[9], 19.0f);
}

TEST_F(CudaDevicesTest, OperandsOnTwoDevicesAreAnError) {
    EXPECT_THROW(build::add(counted(gpu(0), 3), counted(gpu(1), 3)), UserError);
    EXPECT_THROW(build::add(counted(gpu(0), 3), counted(host_device(), 3)), UserError);
}

class LostWork : public CudaDeviceTest {
protected:
    static TensorRef out_of_range(const TensorRef& x) {
        const int32_t place = 77;
        const TensorRef index = tensor_from_host(gpu(), {DType::i32, {1}}, &place);
        return build::op("index_get", {x, index}, {std::vector<int64_t>{0}});
    }
};

TEST_F(LostWork, TheFirstReadTellsOfIt) {
    const TensorRef x = counted(gpu(), 10), lost = out_of_range(x), after = build::add(x, 1.0);
    EXPECT_THROW(values_of(after), UserError);
    EXPECT_THROW(values_of(lost), UserError);
    EXPECT_THROW(build::add(lost, 1.0), UserError);
    EXPECT_THROW(values_of(after), UserError);  // it was queued before anybody knew
}

TEST_F(LostWork, WhatCameBeforeAndWhatComesAfterIsWhole) {
    const TensorRef x = build::mul(counted(gpu(), 10), 2.0), lost = out_of_range(x);
    EXPECT_THROW(values_of(lost), UserError);
    EXPECT_EQ(values_of(x)[4], 8.0f);
    EXPECT_EQ(values_of(build::add(x, 1.0))[4], 9.0f);
}

TEST_F(LostWork, IsSeenByWhatIsQueuedBehindItUntilSomebodyIsTold) {
    auto& stream = dynamic_cast<CudaStream&>(gpu().stream());
    const TensorRef x = counted(gpu(), 10), seen = empty_tensor(gpu(), {DType::u8, {3}});
    const auto look = [&](int at) { stream.tell_failure(static_cast<char*>(seen->data()) + at); };
    look(0);
    const TensorRef lost = out_of_range(x);
    look(1);
    EXPECT_THROW(values_of(lost), UserError);
    look(2);
    const HostView view(seen);
    EXPECT_EQ(view.as<uint8_t>()[0], 0);
    EXPECT_NE(view.as<uint8_t>()[1], 0);
    EXPECT_EQ(view.as<uint8_t>()[2], 0);
}

TEST_F(LostWork, ThatFailsTooIsNotToldASecondTime) {
    const TensorRef x = counted(gpu(), 10), lost = out_of_range(x);
    const Ticket ticket = gpu().stream().record();
    const TensorRef lost_too = out_of_range(x);
    EXPECT_THROW(gpu().stream().synchronize(ticket), UserError);
    EXPECT_EQ(values_of(build::add(x, 1.0))[4], 5.0f);
    EXPECT_THROW(values_of(lost_too), UserError);
}

TEST_F(CudaDeviceTest, AChildOfAForkIsToldThatItCannotUseIt) {
    const TensorRef x = counted(gpu(), 10);
    EXPECT_EXIT(
        {
            try {
                values_of(x);
            } catch (const DeviceError&) { _exit(7); }
            _exit(0);
        },
        testing::ExitedWithCode(7), "");
}

// ---- repeated work

class Repeated : public CudaDeviceTest {
protected:
    // x * factor + 1, in two kernels.
    TensorRef step(const TensorRef& x, const TensorRef& factor) {
        TensorRef result;
        gpu().stream().repeat(kept_, [&] { result = build::add(build::mul(x, factor), one_); });
        return result;
    }
    TensorRef one_;
    std::unique_ptr<Stream::Kept> kept_;
};

TEST_F(Repeated, GivesTheSameOnOtherOperands) {
    one_ = counted(gpu(), 1);  // 0
    std::vector<TensorRef> results, factors;
    const TensorRef x = counted(gpu(), 1000);
    for (int i = 0; i < 10; ++i) {
        factors.push_back(build::add(counted(gpu(), 1), static_cast<double>(i)));
        results.push_back(step(x, factors.back()));
    }
    for (int i = 0; i < 10; ++i) EXPECT_EQ(values_of(results[i])[999], 999.0f * i) << i;
}

TEST_F(Repeated, TakesOtherWorkToo) {
    for (int i = 0; i < 6; ++i) {
        const TensorRef x = counted(gpu(), 100 + 300 * (i % 3));
        TensorRef sum;
        gpu().stream().repeat(kept_, [&] {
            sum = x;
            for (int k = 0; k < 1 + i % 2; ++k) sum = build::add(sum, x);
        });
        EXPECT_EQ(values_of(sum)[99], 99.0f * (2 + i % 2)) << i;
    }
}

// Each place makes a graph of its own; there are not so many, and some are made again, or no more.
TEST_F(Repeated, CopiesToPlacesThatChange) {
    std::vector<TensorRef> places;
    for (int i = 0; i < 7; ++i) places.push_back(counted(gpu(), 10));
    const TensorRef two = build::add(counted(gpu(), 1), 2.0);
    for (const size_t used : {2u, 4u, 7u, 1u})
        for (size_t run = 0; run < 30; ++run) {
            const TensorRef x = build::add(counted(gpu(), 10), static_cast<double>(run)),
                            &place = places[run % used];
            TensorRef product;
            gpu().stream().repeat(kept_, [&] {
                product = build::mul(x, two);
                gpu().stream().copy(place->data(), product->data(), product->type().bytes());
            });
            ASSERT_EQ(values_of(place)[9], 2.0f * (9 + static_cast<float>(run))) << used;
        }
}

// Found by eight threads: work that was queued while a graph's end waited for its own was taken for
// done, and what it wrote to the host came late.
TEST_F(Repeated, TheEndOfOneIsNotTheEndOfWhatOthersQueue) {
    using std::chrono::milliseconds;
    auto& stream = dynamic_cast<CudaStream&>(gpu().stream());
    one_ = counted(gpu(), 1);
    const TensorRef x = counted(gpu(), 10);
    for (int i = 0; i < 2; ++i) step(x, one_);
    const auto wait_for = [](std::shared_future<void> opened) {
        return [opened] { opened.wait_for(std::chrono::seconds(10)); };
    };
    std::promise<void> first, second;
    stream.call(wait_for(first.get_future().share()));
    std::thread end([&] { kept_ = nullptr; });
    std::this_thread::sleep_for(milliseconds(20));  // now it waits; if not, this proves nothing
    stream.call(wait_for(second.get_future().share()));
    const Ticket behind = stream.record();
    first.set_value();
    end.join();
    const std::future<void> done = std::async([&] { stream.synchronize(behind); });
    EXPECT_EQ(done.wait_for(milliseconds(20)), std::future_status::timeout);
    second.set_value();
}

// Found by eight threads on a card: a thread that waited for the stream spoiled another's capture.
TEST_F(Repeated, TheEndOfOneSparesWhatAnotherThreadCaptures) {
    one_ = counted(gpu(), 1);
    const TensorRef x = counted(gpu(), 10);
    for (int i = 0; i < 3; ++i) step(x, one_);
    std::unique_ptr<Stream::Kept> other;
    TensorRef sum;
    std::future<void> end;
    int calls = 0;
    for (int run = 0; run < 3; ++run)
        gpu().stream().repeat(other, [&] {
            sum = build::add(x, x);
            if (++calls == 3) {  // first it is run, then looked at, then captured
                end = std::async(std::launch::async, [&] { kept_ = nullptr; });
                end.wait_for(std::chrono::milliseconds(20));
            }
            sum = build::add(sum, x);
        });
    end.get();
    EXPECT_EQ(values_of(sum)[9], 27.0f);
}

// ---- failures of the GPU

class CudaFailures : public CudaDeviceTest {
protected:
    // `is_known`: the work has failed by the time that an event is recorded behind it.
    static void end_by_an_illegal_address(CudaStream& stream, bool is_known) {
        const SourceKernel kernel(
            stream.gpu(), "extern \"C\" __global__ void far(float* p) { p[1] = 1; }", "far");
        stream.name_next("relu", "train.py:12");
        kernel.launch(stream, blocks_for(1), Address{64});
        if (is_known) stream.wait_until_idle();
        try {
            stream.synchronize(stream.record());
        } catch (const DeviceError& error) { std::fprintf(stderr, "%s\n", error.what()); }
        try {
            values_of(counted(gpu(), 1));
        } catch (const DeviceError&) {  // it stays so
            if (values_of(counted(host_device(), 3))[2] == 2) _exit(7);
        }
        _exit(0);
    }
};

TEST_F(CudaFailures, AnIllegalAddressNamesTheWorkAndLeavesTheHostAlone) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child starts anew: a GPU bears no fork
    auto& stream = dynamic_cast<CudaStream&>(gpu().stream());
    const bool names_the_kernel = stream.gpu().driver().emulation();
    for (const bool is_known : {false, true})
        EXPECT_EXIT(end_by_an_illegal_address(stream, is_known), testing::ExitedWithCode(7),
                    cat("gpu0:0 does no more work.*", names_the_kernel ? "far.*" : "",
                        "relu \\(train.py:12\\)"));
}

}}  // namespace megjit::cuda
