// The emulated accelerator: what a device promises, and what it is there to find.
#include <gtest/gtest.h>

#include <numeric>

#include "backends/cpu/cpu_device.h"
#include "backends/emulated/emulated_device.h"
#include "memory/caching_allocator.h"
#include "runtime/dispatch.h"
#include "runtime/host_view.h"
#include "runtime/ops/builders.h"

namespace megjit::emulated { namespace {

using namespace runtime;

class EmulatedDeviceTest : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        static const bool once = [] {
            register_all_ops();
            register_device(
                std::make_unique<cpu::CpuDevice>(std::make_unique<memory::CachingAllocator>()));
            for (int number : {0, 1})
                register_device(std::make_unique<EmulatedDevice>(number, host_device(),
                                                                 &memory::make_caching_allocator));
            return true;
        }();
        (void)once;
    }

    static Device& gpu(int index = 0) { return find_device(cat("gpu", index, ":0")); }

    static TensorRef counted(Device& device, int64_t n) {
        std::vector<float> numbers(static_cast<size_t>(n));
        std::iota(numbers.begin(), numbers.end(), 0.0f);
        return tensor_from_host(device, {.shape = {n}}, numbers.data());
    }

    static std::vector<float> values_of(const TensorRef& tensor) {
        const HostView view(tensor);
        return {view.as<float>(), view.as<float>() + tensor->type().numel()};
    }
};

using EmulatedDeviceDeathTest = EmulatedDeviceTest;

TEST_F(EmulatedDeviceDeathTest, TheHostCannotTouchItsMemory) {
    const TensorRef x = counted(gpu(), 100);
    EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(x->data())), "");
}

TEST_F(EmulatedDeviceTest, WorkRunsInTheOrderInWhichItIsQueued) {
    TensorRef x = counted(gpu(), 1000), sum = x;
    for (int i = 0; i < 200; ++i) sum = build::add(sum, x);
    const std::vector<float> values = values_of(sum);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 201.0f * static_cast<float>(i));
}

TEST_F(EmulatedDeviceTest, MemoryIsUsedAgainOnlyByWhatIsQueuedLater) {
    std::vector<TensorRef> kept;
    for (int i = 0; i < 300; ++i) {
        const TensorRef x = counted(gpu(), 5000);
        const TensorRef gone = build::mul(x, 3.0);
        kept.push_back(build::add(gone, static_cast<double>(i)));
    }
    for (size_t i = 0; i < kept.size(); ++i)
        ASSERT_EQ(values_of(kept[i])[4999], 3 * 4999.0f + static_cast<float>(i));
}

TEST_F(EmulatedDeviceTest, PagesGoBackWhenNothingUsesThemAnyMore) {
    TensorRef sum = counted(gpu(), 1 << 18);
    for (int i = 0; i < 20; ++i) {
        sum = build::add(sum, 1.0);
        gpu().allocator().trim();
    }
    EXPECT_EQ(values_of(sum)[5], 25.0f);
}

TEST_F(EmulatedDeviceTest, AStreamWaitsForAnother) {
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

TEST_F(EmulatedDeviceTest, WaitingCostsTheTimeOfTheOtherStream) {
    Stream &work = gpu().stream(), &copies = gpu().copy_stream();
    const TensorRef x = counted(gpu(), 1 << 20);
    const Ticket begin = work.record_time();
    std::vector<float> back(1 << 20);
    copies.wait(work, begin);
    copies.download(back.data(), x->data(), back.size() * sizeof(float));
    work.wait(copies, copies.record());
    const Ticket end = work.record_time();
    work.synchronize();
    const double expected = static_cast<double>(back.size() * sizeof(float)) / kSpeeds.link_bytes;
    EXPECT_NEAR(work.seconds_at(end) - work.seconds_at(begin), expected, expected / 100);
}

TEST_F(EmulatedDeviceTest, ValuesGoFromDeviceToDevice) {
    const TensorRef there = copied_to(build::mul(counted(gpu(0), 10), 2.0), gpu(1));
    EXPECT_EQ(&there->device(), &gpu(1));
    EXPECT_EQ(values_of(build::add(there, 1.0))[9], 19.0f);
}

TEST_F(EmulatedDeviceTest, OperandsOnTwoDevicesAreAnError) {
    EXPECT_THROW(build::add(counted(gpu(0), 3), counted(gpu(1), 3)), UserError);
    EXPECT_THROW(build::add(counted(gpu(0), 3), counted(host_device(), 3)), UserError);
}

class LostWork : public EmulatedDeviceTest {
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

TEST_F(EmulatedDeviceTest, AChildOfAForkIsToldThatItCannotUseIt) {
    const TensorRef x = counted(gpu(), 10);
    EXPECT_EXIT(
        {
            try {
                values_of(x);
            } catch (const DeviceError&) { _exit(7); }
            _exit(0);
        },
        ::testing::ExitedWithCode(7), "");
}

}}  // namespace megjit::emulated
