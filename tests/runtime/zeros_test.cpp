#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "runtime/core/device.h"
#include "runtime/core/tensor.h"
#include "tests/jit/world.h"

namespace megjit::runtime { namespace {

constexpr int64_t kZeros = int64_t{1} << 20;
const Type kZerosType{.dtype = DType::f32, .shape = {kZeros}};

class ZerosTest : public jit::World {
protected:
    static size_t memory_in_use() { return host_device().allocator().stats().in_use; }
};

TEST_F(ZerosTest, TakeMemoryOnceTheyAreRead) {
    const size_t before = memory_in_use();
    {
        const Ref<Storage> zeros = Storage::zeros(host_device(), kZerosType);
        EXPECT_EQ(memory_in_use(), before);
        EXPECT_TRUE(zeros->unique());
        auto* data = static_cast<float*>(zeros->data());
        EXPECT_EQ(std::count(data, data + kZeros, 0.0F), kZeros);
        EXPECT_GE(memory_in_use(), before + kZerosType.bytes());
        data[7] = 1;  // their holder may write over them, and finds that again
        zeros->leave();
        EXPECT_TRUE(zeros->unique());
        EXPECT_EQ(static_cast<float*>(zeros->data())[7], 1);
    }
    EXPECT_EQ(memory_in_use(), before);
}

TEST_F(ZerosTest, UnreadTakeNone) {
    const size_t before = memory_in_use();
    Storage::zeros(host_device(), kZerosType);
    EXPECT_EQ(memory_in_use(), before);
}

TEST_F(ZerosTest, ThreadsThatReadAtOnceSeeOneBlock) {
    const size_t before = memory_in_use();
    for (int round = 0; round < 20; ++round) {
        const Ref<Storage> zeros = Storage::zeros(host_device(), kZerosType);
        std::vector<void*> seen(4);
        std::vector<std::thread> threads;
        for (void*& data : seen) threads.emplace_back([&] { data = zeros->data(); });
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(std::ranges::count(seen, zeros->data()), 4);
        EXPECT_LT(memory_in_use(), before + 2 * kZerosType.bytes());
    }
    EXPECT_EQ(memory_in_use(), before);
}

TEST_F(ZerosTest, AnErrorForWantOfMemoryNamesThem) {
    const Ref<Storage> zeros = Storage::zeros(host_device(), kZerosType);
    Allocator& allocator = host_device().allocator();
    allocator.set_cap(memory_in_use() + kZerosType.bytes() / 2);
    EXPECT_THROW(zeros->data(), OutOfMemory);
    allocator.set_cap(memory_in_use() + kZerosType.bytes() * 3 / 2);
    zeros->data();
    try {
        empty_tensor(host_device(), kZerosType);
        FAIL();
    } catch (const OutOfMemory& error) {
        EXPECT_NE(message_of(error).text().find("zeros f32[1048576]"), std::string::npos);
    }
    allocator.set_cap(kNoCap);
}

}}  // namespace megjit::runtime
