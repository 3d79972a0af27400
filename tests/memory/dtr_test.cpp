#include "memory/dtr.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace megjit::memory { namespace {

using Id = DtrPolicy::Id;

// a chain of values, one second and 100 bytes each, all offered
std::vector<Id> chain(DtrPolicy& policy, int length) {
    std::vector<Id> ids;
    for (int i = 0; i < length; ++i) {
        const std::span<const Id> parents(ids.data() + std::max(0, i - 1), i ? 1 : 0);
        ids.push_back(policy.add(100, 1.0, parents, i));
        policy.offer(ids.back());
    }
    return ids;
}

void evict(DtrPolicy& policy, Id id) {
    policy.withdraw(id);
    policy.evicted(id);
}

TEST(Dtr, ChoosesTheCheapestPerByteAndSecond) {
    DtrPolicy policy;
    const Id dear = policy.add(100, 5.0, {}, 0), cheap = policy.add(100, 1.0, {}, 0),
             large = policy.add(1000, 2.0, {}, 0);
    for (const Id id : {dear, cheap, large}) policy.offer(id);
    EXPECT_EQ(policy.choose(10), large);
    policy.withdraw(large);
    EXPECT_EQ(policy.choose(10), cheap);
    policy.touch(cheap, 9.9);
    EXPECT_EQ(policy.choose(10), dear);
}

TEST(Dtr, NothingOfferedNothingChosen) {
    DtrPolicy policy;
    const Id id = policy.add(100, 1, {}, 0);
    EXPECT_EQ(policy.choose(1), std::nullopt);
    policy.offer(id);
    policy.remove(id);
    EXPECT_EQ(policy.choose(1), std::nullopt);
}

// 0 - (1) - (2) - 3 - 4      in brackets: evicted
TEST(Dtr, CountsTheEvictedNeighbourhoodOnce) {
    DtrPolicy policy;
    const auto ids = chain(policy, 5);
    evict(policy, ids[1]);
    evict(policy, ids[2]);
    EXPECT_EQ(policy.cost_with_neighbours(ids[0]), 3);
    EXPECT_EQ(policy.cost_with_neighbours(ids[3]), 3);
    EXPECT_EQ(policy.cost_with_neighbours(ids[4]), 1);
    const Id join[] = {ids[1], ids[2]};
    EXPECT_EQ(policy.cost_with_neighbours(policy.add(100, 1, join, 5)), 3);
    policy.restored(ids[1]);
    EXPECT_EQ(policy.cost_with_neighbours(ids[3]), 2);
}

TEST(Dtr, ACutEndsTheNeighbourhood) {
    DtrPolicy policy;
    const auto ids = chain(policy, 3);
    evict(policy, ids[0]);
    EXPECT_EQ(policy.cost_with_neighbours(ids[1]), 2);
    policy.cut(ids[1]);
    EXPECT_EQ(policy.cost_with_neighbours(ids[1]), 1);
    policy.remove(ids[0]);
    EXPECT_EQ(policy.add(50, 1, {}, 9), ids[0]) << "numbers are used again";
}

TEST(Dtr, RenewedSetsKeepTheirCosts) {
    DtrPolicy policy;
    const auto ids = chain(policy, 4);
    evict(policy, ids[1]);
    for (int i = 0; i < 5000; ++i) {
        evict(policy, ids[2]);
        policy.restored(ids[2]);
    }
    EXPECT_NEAR(policy.cost_with_neighbours(ids[0]), 2, 1e-9);
    EXPECT_NEAR(policy.cost_with_neighbours(ids[3]), 1, 1e-9);
}

TEST(Dtr, SamplingChoosesACandidate) {
    DtrPolicy policy;
    policy.use_sqrt_sampling(true);
    auto ids = chain(policy, 100);
    for (int i = 0; i < 100; ++i) {
        const auto id = policy.choose(200);
        ASSERT_TRUE(id);
        ASSERT_EQ(std::erase(ids, *id), 1u);
        evict(policy, *id);
    }
    EXPECT_EQ(policy.choose(200), std::nullopt);
}

}}  // namespace megjit::memory
