#include "memory/planner.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "memory/validator.h"
#include "tests/memory/lifetimes.h"

namespace megjit::memory { namespace {

void expect_within(double ratio, const std::vector<Buffer>& buffers) {
    const Plan plan = plan_arena(buffers);
    EXPECT_EQ(fault_of(buffers, plan), "");
    const auto peak = static_cast<double>(peak_live_bytes(buffers));
    EXPECT_LE(static_cast<double>(plan.arena_bytes), ratio * peak);
    EXPECT_GE(static_cast<double>(plan.arena_bytes), peak);
}

//   step:        0     1     2
//   offset 256 |  b  |     |     |      a is dead when c is born,
//   offset   0 |  a  |     |  c  |      so c takes over its place
TEST(PlanArena, ReusesThePlaceOfADeadBuffer) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 256},
                                         {.live = {0, 1}, .bytes = 256},
                                         {.live = {2, 3}, .bytes = 256}};
    const Plan plan = plan_arena(buffers);
    EXPECT_EQ(fault_of(buffers, plan), "");
    EXPECT_EQ(plan.arena_bytes, 512);
}

//   step:        0     1
//   offset  64 |     |  b  |      half-open lifetimes: a ends where b starts,
//   offset   0 |  a  |  b  |      b is larger and lies over all of a
TEST(PlanArena, ReusesAPlaceInTheVeryNextStep) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 64},
                                         {.live = {1, 2}, .bytes = 128}};
    EXPECT_EQ(plan_arena(buffers).arena_bytes, 128);
}

//   step:        0     1     2     3     4
//   offset 128 |     |     |  c  |     |     |      forward fills the stack,
//   offset  64 |     |  b  |  b  |  b  |     |      backward empties it
//   offset   0 |  a  |  a  |  a  |  a  |  a  |
TEST(PlanArena, StacksWhatForwardKeepsForBackward) {
    const std::vector<Buffer> buffers = {{.live = {0, 5}, .bytes = 64},
                                         {.live = {1, 4}, .bytes = 64},
                                         {.live = {2, 3}, .bytes = 64}};
    EXPECT_EQ(plan_arena(buffers).arena_bytes, 192);
}

//   step:        0     1     2
//   offset 192 |  b  |  b  |     |      b lies on top of a, although it outlives a:
//   offset   0 |  a  |  c  |  c  |      else the larger c would not find room
TEST(PlanArena, LooksAheadToTheFullestStep) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 128},
                                         {.live = {0, 2}, .bytes = 64},
                                         {.live = {1, 3}, .bytes = 192}};
    const Plan plan = plan_arena(buffers);
    EXPECT_EQ(fault_of(buffers, plan), "");
    EXPECT_EQ(plan.arena_bytes, 256);
}

TEST(PlanArena, GivesAnEmptyArenaToNoBuffers) {
    const Plan plan = plan_arena({});
    EXPECT_EQ(plan.arena_bytes, 0);
    EXPECT_TRUE(plan.offsets.empty());
}

TEST(PlanArena, SpendsNothingOnEmptyBuffersAndEmptyLifetimes) {
    const std::vector<Buffer> buffers = {{.live = {0, 9}, .bytes = 0},
                                         {.live = {3, 3}, .bytes = 64}};
    const Plan plan = plan_arena(buffers);
    EXPECT_EQ(fault_of(buffers, plan), "");
    EXPECT_EQ(plan.arena_bytes, 0);
}

TEST(PlanArena, DoesNotPadTheBufferOnTop) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 8}};
    EXPECT_EQ(plan_arena(buffers).arena_bytes, 8);
}

TEST(PlanArena, ObeysEachAlignment) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 100, .align = 1},
                                         {.live = {0, 1}, .bytes = 100, .align = 4096},
                                         {.live = {0, 1}, .bytes = 100, .align = 256}};
    EXPECT_EQ(fault_of(buffers, plan_arena(buffers)), "");
}

TEST(PlanArena, RefusesAnAlignmentThatIsNoPowerOfTwo) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 8, .align = 48}};
    EXPECT_THROW(plan_arena(buffers), std::invalid_argument);
}

TEST(PlanArena, RefusesMoreBytesThanThereAreAddresses) {
    const size_t half = std::numeric_limits<size_t>::max() / 2;
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = half},
                                         {.live = {0, 1}, .bytes = half}};
    EXPECT_THROW(plan_arena(buffers), std::length_error);
}

TEST(PlanArena, GivesTheSamePlanEveryTime) {
    const std::vector<Buffer> buffers = random_buffers(7, 200, 100, 1000);
    EXPECT_EQ(plan_arena(buffers).offsets, plan_arena(buffers).offsets);
}

TEST(PlanArena, IsSoundOnRandomBuffers) {
    for (uint32_t seed = 0; seed < 300; ++seed) {
        const std::vector<Buffer> buffers =
            random_buffers(seed, 1 + seed % 60, 1 + seed % 37, seed % 2 == 0 ? 10 : 5000);
        const Plan plan = plan_arena(buffers);
        ASSERT_EQ(fault_of(buffers, plan), "") << "seed " << seed;
        ASSERT_GE(plan.arena_bytes, peak_live_bytes(buffers)) << "seed " << seed;
    }
}

// The hard case, without structure.
TEST(PlanArena, ComesNearThePeakOnRandomLifetimes) {
    for (uint32_t seed = 0; seed < 10; ++seed) {
        std::vector<Buffer> buffers = random_buffers(seed, 200, 100, 1 << 20);
        for (Buffer& b : buffers) b.align = 64;
        const auto arena = static_cast<double>(plan_arena(buffers).arena_bytes);
        EXPECT_LE(arena, 1.025 * static_cast<double>(peak_live_bytes(buffers))) << "seed " << seed;
    }
}

TEST(PlanArena, ReachesThePeakOfAnMlpStep) { expect_within(1.001, mlp_step(200, 64, 1024)); }
TEST(PlanArena, ReachesThePeakOfAWideMlpStep) { expect_within(1.001, mlp_step(20, 4096, 256)); }
TEST(PlanArena, ComesNearThePeakOfResNet50) { expect_within(1.02, resnet_step({3, 4, 6, 3}, 32)); }
TEST(PlanArena, ComesNearThePeakOfResNet50WithOneImage) {
    expect_within(1.02, resnet_step({3, 4, 6, 3}, 1));
}
TEST(PlanArena, ComesNearThePeakOfResNet152) { expect_within(1.02, resnet_step({3, 8, 36, 3}, 4)); }
TEST(PlanArena, ComesNearThePeakOfAUNet) { expect_within(1.02, unet_step(5, 2, 256)); }
TEST(PlanArena, ComesNearThePeakOfATransformer) {
    expect_within(1.02, transformer_step(12, 512, 768));
}

TEST(PlanArena, ComesNearThePeakOfAnMlpOfFiveThousandLayers) {
    expect_within(1.02, mlp_step(5000, 64, 256));
}

TEST(PeakLiveBytes, IsTheFullestStep) {
    const std::vector<Buffer> buffers = {
        {.live = {0, 2}, .bytes = 10}, {.live = {1, 3}, .bytes = 20}, {.live = {2, 4}, .bytes = 5}};
    EXPECT_EQ(peak_live_bytes(buffers), 30);
}

TEST(FaultOf, NamesTwoBuffersOnTheSameBytes) {
    const std::vector<Buffer> buffers = {{.id = 4, .live = {0, 2}, .bytes = 64},
                                         {.id = 9, .live = {1, 3}, .bytes = 64}};
    EXPECT_EQ(fault_of(buffers, {.offsets = {0, 0}, .arena_bytes = 64}),
              "buffer 4 (steps [0, 2), bytes [0, 64)) and buffer 9 (steps [1, 3), bytes [0, 64)) "
              "are live in the same step on the same bytes");
}

TEST(FaultOf, NamesABufferOutsideTheArena) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 64}};
    EXPECT_EQ(fault_of(buffers, {.offsets = {64}, .arena_bytes = 100}),
              "buffer 0 (steps [0, 1), bytes [64, 128)) ends outside the arena of 100 bytes");
}

TEST(FaultOf, NamesABufferThatIsNotAligned) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 8}};
    EXPECT_EQ(fault_of(buffers, {.offsets = {8}, .arena_bytes = 64}),
              "buffer 0 (steps [0, 1), bytes [8, 16)) is not aligned to 64");
}

TEST(FaultOf, CountsTheOffsets) {
    const std::vector<Buffer> buffers = {{.live = {0, 1}, .bytes = 8}};
    EXPECT_EQ(fault_of(buffers, {}), "the plan has 0 offsets for 1 buffers");
}

}}  // namespace megjit::memory
