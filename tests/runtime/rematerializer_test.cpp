#include "runtime/core/rematerializer.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <random>
#include <thread>

#include "memory/dtr.h"
#include "runtime/core/random.h"
#include "runtime/ops/builders.h"
#include "tests/jit/world.h"

namespace megjit::runtime { namespace {

using jit::values_of;

constexpr int64_t kNumel = 1024;
constexpr size_t kBytes = kNumel * sizeof(float);

TensorRef numbers(int64_t numel = kNumel) {
    TensorRef tensor = empty_tensor(host_device(), {.dtype = DType::f32, .shape = {numel}});
    for (int64_t i = 0; i < numel; ++i) tensor->as<float>()[i] = static_cast<float>(i) / 512 - 1;
    return tensor;
}

size_t bytes_in_use() { return host_device().allocator().stats().in_use; }

class RematerializerTest : public jit::World {
protected:
    static void SetUpTestSuite() {
        jit::World::SetUpTestSuite();
        here().set_policy(std::make_unique<memory::DtrPolicy>());
    }
    void SetUp() override {
        build::add(numbers(), 1);  // a thread's cache of scalars and executables
        before_ = bytes_in_use();
        bound(0);
    }
    void TearDown() override {
        here().configure({});
        host_device().allocator().set_cap(kNoCap);
        EXPECT_EQ(here().stats().values, 0u);
        EXPECT_EQ(bytes_in_use(), before_);
    }

    static Rematerializer& here() { return Rematerializer::instance(); }
    static void bound(size_t threshold, size_t least_bytes = kBytes) {
        here().configure({.is_on = true, .threshold = threshold, .least_bytes = least_bytes});
    }
    static void evict_all() {
        bound(1);
        EXPECT_THROW(here().allocate(host_device(), 2), OutOfMemory);
        bound(0);
    }
    // Data that went elsewhere in memory and back.
    static std::vector<float> values_after_eviction(const TensorRef& tensor) {
        const uint64_t earlier = here().stats().recomputations;
        evict_all();
        std::vector<float> values = values_of(tensor);
        EXPECT_GT(here().stats().recomputations, earlier);
        return values;
    }
    size_t before_ = 0;
};

TEST_F(RematerializerTest, AnEvictedValueComesBackWithItsBits) {
    const TensorRef x = numbers(), y = build::op("tanh", {x});
    const std::vector<float> expected = values_of(y);
    EXPECT_EQ(values_after_eviction(y), expected);
}

TEST_F(RematerializerTest, EvictionFreesTheMemoryAndSourcesStay) {
    const TensorRef x = numbers(), y = build::op("exp", {x});
    const void* data = x->data();
    evict_all();
    EXPECT_EQ(bytes_in_use(), before_ + kBytes);
    EXPECT_EQ(x->data(), data);
}

TEST_F(RematerializerTest, RandomNumbersAreDrawnAgainBitForBit) {
    const TensorRef mask = build::op("dropout_mask", {default_random_state().key()},
                                     {std::vector<int64_t>{kNumel}, 0.5});
    const std::vector<float> expected = values_of(mask);
    EXPECT_EQ(values_after_eviction(mask), expected);
}

TEST_F(RematerializerTest, AViewSeesTheValueThatCameBack) {
    const TensorRef x = numbers(), y = build::op("exp", {x}),
                    view = build::reshape(y, {2, kNumel / 2});
    const std::vector<float> expected = values_of(y);
    EXPECT_EQ(values_after_eviction(view), expected);
    EXPECT_EQ(view->data(), y->data());
}

TEST_F(RematerializerTest, AllResultsOfACallComeBackTogether) {
    const TensorRef x = numbers();
    const Tensors sorted = build::op_n("sort", {&x, 1}, {int64_t{-1}, int64_t{1}});
    const std::vector<float> expected = values_of(sorted[0]);
    EXPECT_EQ(values_after_eviction(sorted[0]), expected);
    const uint64_t earlier = here().stats().recomputations;
    EXPECT_EQ(sorted[1]->as<int32_t>()[0], kNumel - 1);
    EXPECT_EQ(here().stats().recomputations, earlier);
}

TEST_F(RematerializerTest, APinnedValueStaysWhereItIs) {
    const TensorRef x = numbers(), y = build::op("exp", {x});
    const void* data = y->data();
    {
        const Pins pins({&y, 1});
        evict_all();
        EXPECT_EQ(bytes_in_use(), before_ + 2 * kBytes);
        EXPECT_EQ(y->data(), data);
    }
    evict_all();
    EXPECT_EQ(bytes_in_use(), before_ + kBytes);
}

TEST_F(RematerializerTest, PinsOfWhatCannotComeBackHoldNothing) {
    const TensorRef x = numbers(), y = build::op("exp", {x}), z = build::op("tanh", {x});
    const TensorRef both[] = {y, z};
    evict_all();
    bound(bytes_in_use() + kBytes);  // one of them
    EXPECT_THROW(Pins{both}, OutOfMemory);
    evict_all();
    EXPECT_EQ(bytes_in_use(), before_ + kBytes);
}

TEST_F(RematerializerTest, AKeptValueIsNeverEvicted) {
    const TensorRef x = numbers(), y = build::op("exp", {x});
    evict_all();
    here().keep(*y);
    const void* data = y->data();
    evict_all();
    EXPECT_EQ(y->data(), data);
}

// x -> (y) -> z: nobody holds y when z is evicted.
TEST_F(RematerializerTest, AValueComesBackThroughOneThatNobodyHolds) {
    const TensorRef x = numbers(), z = build::op("tanh", {build::op("exp", {x})});
    EXPECT_EQ(bytes_in_use(), before_ + 2 * kBytes) << "y went at once";
    const std::vector<float> expected = values_of(z);
    EXPECT_EQ(values_after_eviction(z), expected);
    evict_all();
    EXPECT_EQ(bytes_in_use(), before_ + kBytes)
        << "y, computed again for z, goes before all others";
}

TEST_F(RematerializerTest, ASourceOutlivesItsTensorWhileAnEvictedValueNeedsIt) {
    TensorRef x = numbers();
    const TensorRef y = build::op("exp", {x});
    const std::vector<float> expected = values_of(y);
    evict_all();
    x = {};
    EXPECT_EQ(bytes_in_use(), before_ + kBytes);
    EXPECT_EQ(values_of(y), expected);
}

TEST_F(RematerializerTest, ASourceGoesWithItsTensorWhenLessWasMadeOfIt) {
    TensorRef x = numbers(4 * kNumel);
    const TensorRef y = build::reduce_sum(build::reshape(x, {kNumel, 4}), {1}, false);
    x = {};
    EXPECT_EQ(bytes_in_use(), before_ + kBytes);
    evict_all();
    EXPECT_EQ(bytes_in_use(), before_ + kBytes) << "y is a source now";
}

// The first state of a recurrent net makes all others evictable.
TEST_F(RematerializerTest, AStateThatWasLeftBehindMakesItsSuccessorsEvictable) {
    TensorRef state = numbers();
    std::vector<TensorRef> outputs;
    for (int i = 0; i < 10; ++i) {
        state = build::op("tanh", {state});
        outputs.push_back(build::op("exp", {state}));
    }
    const std::vector<float> expected = values_of(outputs[7]);
    EXPECT_EQ(values_after_eviction(outputs[7]), expected);
    evict_all();
    EXPECT_EQ(bytes_in_use(), before_ + kBytes);
}

TEST_F(RematerializerTest, WhereNothingElseIsLeftSourcesWithoutATensorGo) {
    TensorRef x = numbers();
    const TensorRef y = build::op("exp", {x});
    const Pins pins({&y, 1});
    x = {};
    EXPECT_EQ(bytes_in_use(), before_ + 2 * kBytes);
    evict_all();
    EXPECT_EQ(bytes_in_use(), before_ + kBytes);
}

TEST_F(RematerializerTest, WhatIsReadAgainIsNotOverwritten) {
    const TensorRef x = numbers();
    TensorRef y = build::op("exp", {x});
    evict_all();
    EXPECT_FALSE(x->storage()->unique());
    y = {};
    EXPECT_TRUE(x->storage()->unique());
}

TEST_F(RematerializerTest, TheThresholdIsKeptOverAChainTenTimesAsLarge) {
    std::vector<TensorRef> chain{numbers()};
    bound(bytes_in_use() + 5 * kBytes);
    host_device().allocator().reset_peak();
    for (int i = 0; i < 60; ++i) chain.push_back(build::op("tanh", {chain.back()}));
    for (size_t i = chain.size() - 1; i > 0; --i) {
        const std::vector<float> later = values_of(chain[i]);
        EXPECT_EQ(values_of(build::op("tanh", {chain[i - 1]})), later) << i;
    }
    EXPECT_LE(host_device().allocator().stats().peak_in_use, before_ + 6 * kBytes);
}

TEST_F(RematerializerTest, SmallValuesOfTensorsStay) {
    bound(0, kBytes + 1);
    const TensorRef x = numbers(), y = build::op("exp", {x});
    here().configure({.is_on = true, .threshold = 1, .least_bytes = kBytes + 1});
    EXPECT_THROW(here().allocate(host_device(), 1), OutOfMemory);
    EXPECT_EQ(bytes_in_use(), before_ + 2 * kBytes);
}

TEST_F(RematerializerTest, WhatCannotBeKeptIsToldInBytes) {
    const TensorRef x = numbers();
    bound(bytes_in_use() + kBytes - 100);
    try {
        build::op("exp", {x});
        FAIL() << "it fits";
    } catch (const OutOfMemory& error) {
        EXPECT_TRUE(error.is_threshold);
        EXPECT_EQ(error.in_use + error.bytes - error.cap, 100u);
    }
}

TEST_F(RematerializerTest, ACapOfTheDeviceEvictsToo) {
    constexpr int64_t kLarge = int64_t{1} << 20;
    host_device().allocator().trim();
    host_device().allocator().set_cap(host_device().allocator().stats().reserved +
                                      6 * kLarge * sizeof(float));
    std::vector<TensorRef> chain{numbers(kLarge)};
    for (int i = 0; i < 20; ++i) chain.push_back(build::op("tanh", {chain.back()}));
    EXPECT_EQ(values_of(build::op("tanh", {chain[2]})), values_of(chain[3]));
    here().configure({});
    EXPECT_THROW(for (int i = 0; i < 20; ++i) chain.push_back(build::op("tanh", {chain.back()})),
                 OutOfMemory);
}

// Values are made of random others, dropped and read, under a threshold for a third of them.
TEST_F(RematerializerTest, RandomProgramsKeepTheirBits) {
    std::minstd_rand random(1);
    std::vector<std::pair<TensorRef, std::vector<float>>> pool;
    const auto any = [&]() -> auto& { return pool[random() % pool.size()]; };
    const auto keep = [&](const TensorRef& value) { pool.emplace_back(value, values_of(value)); };
    keep(numbers());
    const uint64_t earlier = here().stats().recomputations;
    bound(before_ + 10 * kBytes);
    for (int i = 0; i < 20000; ++i) try {
            if (pool.size() > 30) {
                std::swap(any(), pool.back());
                pool.pop_back();
            }
            switch (random() % 8) {
                case 0: keep(numbers()); break;
                case 1:
                    keep(build::op("dropout_mask", {default_random_state().key()},
                                   {std::vector<int64_t>{kNumel}, 0.5}));
                    break;
                case 2: keep(build::reshape(any().first, {kNumel})); break;
                case 3: keep(build::op("tanh", {build::add(any().first, any().first)})); break;
                case 4: keep(build::mul(any().first, 0.5)); break;
                case 5:
                    keep(build::op_n("sort", {&any().first, 1}, {int64_t{-1}, int64_t{0}})[0]);
                    break;
                default: {
                    const auto& [value, expected] = any();
                    ASSERT_EQ(values_of(value), expected) << "iteration " << i;
                }
            }
        } catch (const OutOfMemory&) {
            std::swap(any(), pool.back());  // too many sources
            if (pool.size() > 1) pool.pop_back();
        }
    EXPECT_GT(here().stats().recomputations, earlier + 1000);
}

void on_a_small_stack(std::function<void()> body) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, size_t{256} << 10);
    pthread_t thread;
    const auto run = [](void* body) -> void* {
        return (*static_cast<std::function<void()>*>(body))(), nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, run, &body), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

TEST_F(RematerializerTest, ChainsOfAnyLengthFitASmallStack) {
    on_a_small_stack([&] {
        const TensorRef x = build::full({kNumel}, 0, DType::f32, host_device());
        TensorRef y = x;
        for (int i = 0; i < 10000; ++i) y = build::add(y, 1);
        evict_all();
        EXPECT_EQ(y->as<float>()[7], 10000);
        evict_all();
        y = {};  // and with it all that it was made of
    });
}

TEST_F(RematerializerTest, ALoopForgetsItsPast) {
    TensorRef state = numbers();
    for (int i = 0; i < 20000; ++i) {
        const TensorRef batch = numbers(kNumel / 2);
        state = build::add(state, build::op("concat", {batch, batch}, {int64_t{0}}));
    }
    EXPECT_LE(bytes_in_use(), before_ + 20 * kBytes);
    EXPECT_LE(here().stats().values, 20000u);
}

TEST_F(RematerializerTest, ValuesBeyondTheLongestChainAreEvictedAsOthersAre) {
    const TensorRef x = numbers();
    TensorRef y = x;
    std::vector<TensorRef> read;
    for (int i = 0; i < 4100; ++i) {
        y = build::op("tanh", {y});
        if (i >= 4090) read.push_back(build::op("exp", {y}));
    }
    evict_all();
    EXPECT_LE(bytes_in_use(), before_ + 3 * kBytes);
}

void train_some() {
    const TensorRef x = numbers();
    std::vector<TensorRef> chain{x};
    for (int i = 0; i < 40; ++i) chain.push_back(build::op("tanh", {chain.back()}));
    for (size_t i = chain.size() - 1; i > 0; --i)
        EXPECT_EQ(values_of(build::op("tanh", {chain[i - 1]})), values_of(chain[i]));
}

TEST_F(RematerializerTest, TwoThreadsShareOneThreshold) {
    host_device().allocator().reset_peak();
    const size_t threshold = bytes_in_use() + 24 * kBytes;
    bound(threshold);
    std::thread other([] {
        for (int i = 0; i < 20; ++i) train_some();
    });
    for (int i = 0; i < 20; ++i) train_some();
    other.join();
    EXPECT_LE(host_device().allocator().stats().peak_in_use, threshold);
}

TEST_F(RematerializerTest, AForkedChildGoesOnWhileAnotherThreadWorks) {
    const TensorRef x = numbers(), y = build::op("exp", {x});
    const std::vector<float> expected = values_of(y);
    std::atomic<bool> is_over = false;
    std::thread other([&] {
        while (!is_over) train_some();
    });
    for (int i = 0; i < 20; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            evict_all();
            _exit(values_of(build::op("exp", {x})) == expected && values_of(y) == expected ? 0 : 1);
        }
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
    is_over = true;
    other.join();
}

}}  // namespace megjit::runtime
