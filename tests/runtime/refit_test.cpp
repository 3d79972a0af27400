#include "runtime/ops/refit.h"

#include "runtime/host/error.h"
#include "tests/jit/world.h"

namespace megjit::runtime { namespace {

using Refit = jit::World;

Type floats_of(const Shape& shape) { return {.dtype = DType::f32, .shape = shape}; }

std::string refitted(std::string_view op, const Attrs& attrs, const Type& before, const Type& after,
                     BatchChange batch = {}) {
    const OpCall call{find_op(op), attrs, {&before, 1}};
    try {
        return to_string(refit(call, {&after, 1}, batch)[0]);
    } catch (const UserError&) { return "refused"; }
}
using Ints = std::vector<int64_t>;

TEST_F(Refit, ABatchThatLeadsFollowsThroughReshape) {
    EXPECT_EQ(refitted("reshape", {Ints{4, 6}}, floats_of({4, 2, 3}), floats_of({8, 2, 3}), {4, 8}),
              "[8, 6]");
    EXPECT_EQ(refitted("reshape", {Ints{8, 3}}, floats_of({4, 2, 3}), floats_of({1, 2, 3}), {4, 1}),
              "[2, 3]");
    EXPECT_EQ(refitted("reshape", {Ints{1, 6}}, floats_of({1, 2, 3}), floats_of({5, 2, 3}), {1, 5}),
              "[5, 6]");
    EXPECT_EQ(refitted("reshape", {Ints{1, 2, 3}}, floats_of({2, 3}), floats_of({10, 3}), {1, 5}),
              "[5, 2, 3]");
}

TEST_F(Refit, AReshapeWithTwoReadingsIsRefused) {
    EXPECT_EQ(refitted("reshape", {Ints{8, 4, 3}}, floats_of({32, 3}), floats_of({64, 3}), {4, 8}),
              "refused");  // [t, B, c]?
    EXPECT_EQ(refitted("reshape", {Ints{6}}, floats_of({1, 6}), floats_of({5, 6}), {1, 5}),
              "refused");  // x[0]?
    EXPECT_EQ(
        refitted("reshape", {Ints{2, 12}}, floats_of({2, 4, 3}), floats_of({2, 8, 3}), {4, 8}),
        "refused");
    EXPECT_EQ(refitted("reshape", {Ints{4, 6}}, floats_of({4, 2, 3}), floats_of({8, 2, 3})),
              "refused");  // no batch is known
}

TEST_F(Refit, WholeAxesStayWholeAndPartsAreRefused) {
    EXPECT_EQ(refitted("slice", {Ints{0, 1}, Ints{4, 2}, Ints{1, 1}}, floats_of({4, 3}),
                       floats_of({8, 3})),
              "[0, 1]");
    EXPECT_EQ(refitted("slice", {Ints{3}, Ints{-1}, Ints{-1}}, floats_of({4}), floats_of({8})),
              "[7]");
    EXPECT_EQ(refitted("slice", {Ints{1}, Ints{4}, Ints{1}}, floats_of({4}), floats_of({8})),
              "refused");
}

TEST_F(Refit, IndexedAxesKeepTheirExtent) {
    EXPECT_EQ(refitted("index_get", {Ints{1}}, floats_of({4, 3}), floats_of({8, 3})), "[1]");
    EXPECT_EQ(refitted("index_get", {Ints{0}}, floats_of({4, 3}), floats_of({8, 3})), "refused");
    EXPECT_EQ(refitted("gather", {int64_t{-1}}, floats_of({4, 3}), floats_of({4, 5})), "refused");
}

TEST_F(Refit, BroadcastsFollowTheAxesThatTheyKeep) {
    EXPECT_EQ(refitted("broadcast_to", {Ints{2, 4, 9}}, floats_of({4, 1}), floats_of({8, 1})),
              "[2, 8, 9]");
}

std::string unknown(std::string_view op, const Attrs& attrs, const Attrs& fitted,
                    BatchChange batch) {
    try {
        refuse_unknown({find_op(op), attrs, {}}, fitted, batch);
        return "taken";
    } catch (const UserError& error) { return error.message.what; }
}

TEST_F(Refit, ExtentsOfWhichNobodyKnowsAreRefused) {
    const Attrs rows{Ints{0}, Ints{4}, Ints{1}}, more{Ints{0}, Ints{8}, Ints{1}};
    EXPECT_EQ(unknown("slice", rows, rows, {4, 8}), "taken");
    EXPECT_EQ(unknown("slice", rows, more, {4, 8}),
              "slice holds [0], [4], [1], and nobody knows whether that is of the batch of 4");
    EXPECT_EQ(unknown("relu", {}, {}, {4, 8}), "taken");
    EXPECT_NO_THROW(refuse_unknown_function({4, 8}));
    EXPECT_THROW(refuse_unknown_function({1, 8}), UserError);
    EXPECT_EQ(unknown("reshape", {Ints{6, 5}}, {Ints{6, 5}}, {4, 8}), "taken");
    EXPECT_EQ(unknown("reshape", {Ints{6, 8}}, {Ints{6, 8}}, {4, 8}),
              "reshape holds [6, 8], and nobody knows whether that is of the batch of 4");
    EXPECT_NO_THROW(refuse_unknown(floats_of({3, 5}), {4, 8}));
    EXPECT_THROW(refuse_unknown(floats_of({8, 5}), {4, 8}), UserError);
}

}}  // namespace megjit::runtime
