#include "runtime/host/unknown_name.h"

#include <gtest/gtest.h>

namespace megjit::runtime { namespace {

constexpr std::string_view kNames[] = {"fuse", "fuse_relu", "fold_constants", "dedup"};

TEST(Closest, IsTheNameWithTheFewestEdits) {
    EXPECT_EQ(closest("fuze", kNames), "fuse");
    EXPECT_EQ(closest("fuse_rleu", kNames), "fuse_relu");
    EXPECT_EQ(closest("fold_constant", kNames), "fold_constants");
    EXPECT_EQ(closest("ddup", kNames), "dedup");
}

TEST(Closest, IsNoneWhereNothingIsNear) {
    EXPECT_EQ(closest("sharding", kNames), "");
    EXPECT_EQ(closest("", kNames), "");
}

}}  // namespace megjit::runtime
