// Blocks that a thread has freed.
#include <thread>

#include <gtest/gtest.h>

#include "runtime/core/block_pool.h"
#include "runtime/core/device.h"
#include "tests/jit/world.h"

namespace megjit::runtime { namespace {

TEST(BlockPool, GivesTheLastBlockFirst) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the pool keeps nothing, so that uses of freed blocks are seen";
#endif
    using Pool = BlockPool<100, 2>;
    void *const a = Pool::take(), *const b = Pool::take();
    Pool::give_back(a);
    Pool::give_back(b);
    EXPECT_EQ(Pool::take(), b);
    EXPECT_EQ(Pool::take(), a);
    Pool::give_back(a);
    Pool::give_back(b);
}

using TensorBlocks = jit::World;

TEST_F(TensorBlocks, OutliveTheThreadThatMadeThem) {
    std::vector<TensorRef> made;
    std::thread([&] {
        for (int i = 0; i < 600; ++i) made.push_back(make_placeholder({}, host_device()));
        made.resize(500);  // some blocks are in the thread's pool when it ends
    }).join();
    std::thread([&] { made.resize(100); }).join();
    const TensorRef another = made[0];
    EXPECT_FALSE(another->unique());
    made.clear();
    EXPECT_TRUE(another->unique());
}

}}  // namespace megjit::runtime
