#include "runtime/ops/operand_layouts.h"

#include <numeric>
#include <thread>

#include "runtime/ops/builders.h"
#include "tests/jit/world.h"
#include "tests/onednn.h"

namespace megjit::runtime { namespace {

using jit::values_of;

class LayoutsTest : public jit::World {
protected:
    static TensorRef counted(const Shape& shape) {
        TensorRef tensor = empty_tensor(host_device(), {.dtype = DType::f32, .shape = shape});
        std::iota(tensor->as<float>(), tensor->as<float>() + shape.numel(), 1.0f);
        return tensor;
    }
    static TensorRef in(Layout layout, const TensorRef& x) {
        return build::op("relayout", {x}, {to_string(layout)});
    }
    static std::vector<Layout> layouts(std::string_view op, std::initializer_list<Type> inputs,
                                       ChannelsLast channels_last = ChannelsLast::where_it_is) {
        return operand_layouts(find_op(op), {inputs.begin(), inputs.size()}, channels_last);
    }
    static TensorRef packed(const TensorRef& x, const TensorRef& w, const Attrs& attrs) {
        const std::vector<Type> types{x->type(), w->type()};
        const OpCall call{find_op("conv"), attrs, types};
        return in(host_device().packed_layout(call, infer(call), 1), w);
    }
    const Attrs plain_{std::vector<int64_t>{1}, std::vector<int64_t>{0}, std::vector<int64_t>{1},
                       int64_t{1}};
};

const Type kRows{DType::f32, {2, 3, 4, 5}}, kLast{DType::f32, {2, 3, 4, 5}, Layout::channels_last},
    kScale{DType::f32, {1, 3, 1, 1}}, kPlane{DType::f32, {4, 5}};
constexpr Layout row = Layout::row_major, last = Layout::channels_last;

TEST_F(LayoutsTest, ElementwiseOpsFollowAFullOperand) {
    EXPECT_EQ(layouts("add", {kLast, kRows}), (std::vector{last, last}));
    EXPECT_EQ(layouts("add", {kScale, kLast}), (std::vector{row, last}));
    EXPECT_EQ(layouts("add", {kRows, kRows}), (std::vector{row, row}));
}

TEST_F(LayoutsTest, ElementwiseOpsDoNotFollowWhereASmallOperandHasAnotherOrder) {
    EXPECT_EQ(layouts("add", {kLast, kPlane}), (std::vector{row, row}));
    const Type column{DType::f32, {2, 1, 4, 5}, last}, line{DType::f32, {1, 3, 4, 5}};
    EXPECT_EQ(layouts("add", {column, line}), (std::vector{row, row}));  // neither is full
}

TEST_F(LayoutsTest, ConvolutionsTakeWhatLiesThere) {
    const Type w{DType::f32, {6, 3, 2, 2}};
    EXPECT_EQ(layouts("conv", {kLast, w}), (std::vector{last, row}));
    EXPECT_EQ(layouts("conv", {kRows, w}), (std::vector{row, row}));
    EXPECT_EQ(layouts("conv", {kRows, w}, ChannelsLast::everywhere), (std::vector{last, row}));
}

TEST_F(LayoutsTest, BytesFollowInPaddingAndConvolutionsAlone) {
    const Type bytes{DType::u8, {2, 3, 4, 5}, last}, w{DType::i8, {6, 3, 2, 2}},
        one{DType::f32, {1}}, bias{DType::f32, {6}};
    EXPECT_EQ(layouts("pad", {bytes}), std::vector{last});
    EXPECT_EQ(layouts("quantized_conv", {bytes, w, one, bias}), (std::vector{last, row, row, row}));
    EXPECT_EQ(layouts("max_pool", {bytes}), std::vector{row});
}

TEST_F(LayoutsTest, OthersGetRowMajor) {
    EXPECT_EQ(layouts("reshape", {kLast}), std::vector{row});
    EXPECT_EQ(layouts("softmax", {kLast}), std::vector{row});
}

TEST_F(LayoutsTest, ResultsAreTheSameInAnyLayout) {
    const TensorRef x = counted({2, 3, 4, 5}), scale = counted({3, 1, 1}), plane = counted({4, 5});
    const TensorRef laid = in(last, x);
    for (const TensorRef& other : {x, scale, plane}) {
        const TensorRef got = build::add(laid, other);
        EXPECT_EQ(values_of(row_major(got)), values_of(build::add(x, other)));
    }
    EXPECT_EQ(values_of(build::reshape(laid, {6, 20})), values_of(x));
    for (const std::string mode : {"constant", "edge", "reflect"}) {
        const Attrs widths{std::vector<int64_t>{0, 1, 2, 3}, std::vector<int64_t>{1, 0, 3, 4}, mode,
                           2.5};
        EXPECT_EQ(values_of(row_major(build::op("pad", {laid}, widths))),
                  values_of(build::op("pad", {x}, widths)));
    }
    EXPECT_EQ(values_of(build::transpose(laid, {3, 0, 1, 2})),
              values_of(build::transpose(x, {3, 0, 1, 2})));
    EXPECT_EQ(values_of(build::reduce_sum(laid, {1}, false)),
              values_of(build::reduce_sum(x, {1}, false)));
}

TEST_F(LayoutsTest, PackedWeightsHaveShapeAndValuesOfDenseOnes) {
    NEEDS_ONEDNN();
    const TensorRef x = in(last, counted({1, 32, 5, 5})), w = counted({48, 32, 3, 3}),
                    p = packed(x, w, plain_);
    ASSERT_TRUE(is_packed(p->type().layout));
    EXPECT_EQ(p->shape(), w->shape());
    EXPECT_EQ(values_of(row_major(p)), values_of(w));
    EXPECT_EQ(values_of(build::neg(p)), values_of(build::neg(w)));
    EXPECT_EQ(values_of(row_major(build::op("conv", {x, p}, plain_))),
              values_of(row_major(build::op("conv", {x, w}, plain_))));
}

TEST_F(LayoutsTest, EqualPackingsAreOneLayout) {
    const TensorRef x = counted({1, 32, 5, 5}), w = counted({48, 32, 3, 3});
    EXPECT_EQ(packed(x, w, plain_)->type(), packed(x, w, plain_)->type());
}

TEST_F(LayoutsTest, PaddedChannelsTakeTheBytesThatTheyTake) {
    const TensorRef p = packed(in(last, counted({1, 5, 6, 6})), counted({7, 5, 3, 3}), plain_);
    EXPECT_GE(p->type().bytes(), static_cast<size_t>(p->type().numel()) * sizeof(float));
    EXPECT_EQ(p->storage()->bytes(), p->type().bytes());
}

TEST_F(LayoutsTest, NamesAreReadBack) {
    const Layout made = add_packed_layout(640);
    EXPECT_EQ(layout_from_name(to_string(made)), made);
    EXPECT_EQ((Type{DType::f32, {2, 3}, made}.bytes()), 640u);
    EXPECT_EQ(layout_from_name("channels_last"), last);
    for (const char* unknown : {"packed", "packed999999", "packed1x", "nchw", ""})
        EXPECT_FALSE(layout_from_name(unknown)) << unknown;
}

TEST_F(LayoutsTest, ThreadsPackAtTheSameTime) {
    const auto pack = [&] {
        for (int64_t c = 16; c < 24; ++c) {
            const TensorRef x = counted({1, c, 5, 5}), w = counted({16, c, 3, 3});
            EXPECT_EQ(values_of(row_major(packed(x, w, plain_))), values_of(w));
        }
    };
    std::thread other(pack);
    pack();
    other.join();
}

}}  // namespace megjit::runtime
