// Convolution and its gradients against plain loops in double, and against each other as adjoints.
#include "runtime/host/isa.h"
#include "runtime/host/parallel.h"
#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

struct ConvCase {
    std::string name = {};
    Shape x = {}, w = {};
    Ints stride{1}, padding{0}, dilation{1};
    int64_t groups = 1;
    Attrs attrs() const { return {stride, padding, dilation, groups}; }
};

// Everything as 3-d: missing axes in front of the spatial ones have extent 1.
Values naive_conv(const Values& x, const Values& w, const ConvCase& c) {
    const int dims = c.x.rank() - 2;
    int64_t in[3] = {1, 1, 1}, k[3] = {1, 1, 1}, s[3] = {1, 1, 1}, p[3] = {0, 0, 0},
            d[3] = {1, 1, 1}, out[3] = {1, 1, 1};
    Shape y{c.x[0], c.w[0]};
    for (int axis = 0; axis < dims; ++axis) {
        const int i = 3 - dims + axis;
        in[i] = c.x[axis + 2], k[i] = c.w[axis + 2], s[i] = at(c.stride, axis),
        p[i] = at(c.padding, axis), d[i] = at(c.dilation, axis);
        out[i] = (in[i] + 2 * p[i] - (k[i] - 1) * d[i] - 1) / s[i] + 1;
        y.push_back(out[i]);
    }
    Values result{{DType::f32, y}, std::vector<double>(static_cast<size_t>(y.numel()))};
    const int64_t icg = c.w[1], ocg = c.w[0] / c.groups, ksize = k[0] * k[1] * k[2],
                  insize = in[0] * in[1] * in[2];
    int64_t index = 0;
    for (int64_t n = 0; n < c.x[0]; ++n)
        for (int64_t oc = 0; oc < c.w[0]; ++oc)
            for (int64_t o0 = 0; o0 < out[0]; ++o0)
                for (int64_t o1 = 0; o1 < out[1]; ++o1)
                    for (int64_t o2 = 0; o2 < out[2]; ++o2, ++index) {
                        double sum = 0;
                        for (int64_t ic = 0; ic < icg; ++ic)
                            for (int64_t q = 0; q < ksize; ++q) {
                                const int64_t i0 = o0 * s[0] - p[0] + q / (k[1] * k[2]) * d[0];
                                const int64_t i1 = o1 * s[1] - p[1] + q / k[2] % k[1] * d[1],
                                              i2 = o2 * s[2] - p[2] + q % k[2] * d[2];
                                if (i0 < 0 || i1 < 0 || i2 < 0 || i0 >= in[0] || i1 >= in[1] ||
                                    i2 >= in[2])
                                    continue;
                                const int64_t channel = oc / ocg * icg + ic;
                                sum += x[(n * c.x[1] + channel) * insize +
                                         (i0 * in[1] + i1) * in[2] + i2] *
                                       w[(oc * icg + ic) * ksize + q];
                            }
                        result[index] = sum;
                    }
    return result;
}

Ints spatial(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

class ConvTest : public ::testing::TestWithParam<std::tuple<ConvCase, Layout>> {};

TEST_P(ConvTest, AgreesWithPlainLoopsAndItsGradientsAreItsAdjoints) {
    const auto& [c, layout] = GetParam();
    Values x = random(c.x, 1, layout), w = random(c.w, 2);
    const Values y = run("conv", {x, w}, c.attrs())[0];
    expect_near(y, naive_conv(x, w, c), 1e-4, "y");
    ASSERT_EQ(y.type.layout, layout);

    const Values dy = random({DType::f32, y.type.shape, layout}, 3);
    Attrs attrs = c.attrs();
    attrs.push_back(spatial(c.x));
    const Values dx = run("conv_backward_data", {dy, w}, attrs)[0];
    ASSERT_EQ(dx.type.shape, c.x);
    attrs.back() = spatial(c.w);
    const Values dw = run("conv_backward_filter", {x, dy}, attrs)[0];
    ASSERT_EQ(dw.type.shape, c.w);
    // Element by element, through unit vectors in a few places, and as a whole.
    const double whole = dot(y, dy),
                 tolerance = 1e-4 * (10 + std::sqrt(static_cast<double>(y.type.numel())));
    EXPECT_NEAR(dot(dx, x), whole, tolerance);
    EXPECT_NEAR(dot(dw, w), whole, tolerance);
    std::mt19937 generator(4);
    for (int trial = 0; trial < 6; ++trial) {
        Values unit{x.type, std::vector<double>(x.data.size())};
        const auto i = static_cast<int64_t>(generator() % x.data.size());
        unit[i] = 1;
        EXPECT_NEAR(dx[i], dot(naive_conv(unit, w, c), dy), 1e-3) << "dx at " << i;
        Values filter{w.type, std::vector<double>(w.data.size())};
        const auto j = static_cast<int64_t>(generator() % w.data.size());
        filter[j] = 1;
        EXPECT_NEAR(dw[j], dot(naive_conv(x, filter, c), dy), 2e-3) << "dw at " << j;
    }
}

const std::vector<ConvCase> kConvCases = {
    {"plain3x3", {2, 16, 9, 9}, {32, 16, 3, 3}, {1}, {1}},
    {"odd_channels", {2, 3, 13, 11}, {5, 3, 3, 3}, {1}, {1}},
    {"stride2", {2, 16, 15, 14}, {16, 16, 3, 3}, {2}, {1}},
    {"uneven", {1, 4, 17, 12}, {6, 4, 5, 2}, {3, 1}, {2, 0}},
    {"dilated", {2, 8, 16, 16}, {8, 8, 3, 3}, {1}, {2}, {2}},
    {"dilated_strided", {1, 7, 19, 21}, {9, 7, 3, 3}, {2, 3}, {1, 2}, {3, 2}},
    {"pointwise", {2, 32, 7, 7}, {64, 32, 1, 1}},
    {"pointwise_of_few_pixels", {1, 40, 3, 4}, {24, 40, 1, 1}},
    {"pointwise_strided", {2, 32, 14, 14}, {64, 32, 1, 1}, {2}},
    {"stem", {1, 3, 33, 33}, {64, 3, 7, 7}, {2}, {3}},
    {"groups", {2, 12, 8, 8}, {8, 3, 3, 3}, {1}, {1}, {1}, 4},
    {"groups16", {2, 32, 8, 8}, {32, 16, 3, 3}, {1}, {1}, {1}, 2},
    {"depthwise", {2, 16, 10, 10}, {16, 1, 3, 3}, {1}, {1}, {1}, 16},
    {"depthwise_odd", {1, 7, 9, 9}, {14, 1, 3, 3}, {2}, {1}, {1}, 7},
    {"line", {2, 4, 31}, {8, 4, 5}, {2}, {2}},
    {"column", {2, 8, 30, 1}, {16, 8, 5, 1}, {2, 1}, {1, 0}},
    {"column_of_groups", {2, 12, 19, 1}, {8, 3, 3, 1}, {1}, {1, 0}, {1}, 4},
    {"line_groups", {3, 6, 20}, {6, 2, 3}, {1}, {1}, {2}, 3},
    {"line_depthwise", {2, 20, 40}, {20, 1, 7}, {1}, {3}, {1}, 20},
    {"line_of_pairs", {2, 12, 9}, {12, 2, 3}, {1}, {2}, {1}, 6},
    {"depthwise5x5", {2, 24, 13, 29}, {24, 1, 5, 5}, {1}, {2}, {1}, 24},
    {"depthwise7x7", {3, 37, 7, 7}, {37, 1, 7, 7}, {1}, {3}, {1}, 37},
    {"depthwise9x9", {1, 16, 12, 24}, {16, 1, 9, 9}, {1}, {5, 4}, {1}, 16},
    {"depthwise_of_many_pixels", {1, 5, 83, 60}, {5, 1, 5, 7}, {1}, {1, 3}, {1}, 5},
    {"depthwise_dilated", {2, 18, 11, 17}, {18, 1, 3, 3}, {1}, {2, 3}, {2, 3}, 18},
    {"depthwise_of_3_columns", {2, 16, 9, 3}, {16, 1, 5, 5}, {1}, {2}, {1}, 16},
    {"depthwise_cropped", {2, 8, 9, 9}, {8, 1, 5, 5}, {1}, {6, 2}, {1}, 8},
    {"groups_of_2", {2, 20, 6, 5}, {20, 2, 3, 3}, {1}, {1}, {1}, 10},
    {"groups_of_4", {2, 28, 9, 15}, {28, 4, 3, 3}, {1}, {1}, {1}, 7},
    {"groups_of_8", {2, 32, 5, 33}, {32, 8, 3, 5}, {1}, {1, 2}, {1}, 4},
    {"groups_of_4_points", {2, 12, 5, 6}, {12, 4, 1, 1}, {1}, {0}, {1}, 3},
    {"channels_doubled", {2, 21, 9, 10}, {42, 1, 5, 5}, {1}, {2}, {1}, 21},
    {"channels_joined", {2, 42, 9, 10}, {14, 3, 3, 3}, {1}, {1}, {1}, 14},
    {"groups_of_6_to_10", {2, 18, 12, 12}, {30, 6, 3, 3}, {1}, {1}, {1}, 3},
    {"volume", {1, 4, 6, 7, 8}, {8, 4, 3, 3, 3}, {1}, {1}},
    {"volume_strided", {2, 3, 7, 6, 5}, {4, 3, 2, 3, 1}, {2, 1, 2}, {0, 1, 0}},
    {"wide_padding", {1, 3, 4, 4}, {4, 3, 3, 3}, {1}, {4}},
    {"long_stride", {1, 3, 11, 11}, {4, 3, 2, 2}, {5}},
    {"whole_input", {2, 5, 4, 4}, {10, 5, 4, 4}},
    {"one_pixel", {1, 1, 1, 1}, {1, 1, 1, 1}},
    {"long_line", {1, 24, 1501}, {20, 24, 5}, {2}, {4}, {2}},
    {"wide_rows_of_a_volume", {1, 20, 3, 3, 700}, {10, 20, 3, 3, 3}, {1}, {1}},
    {"more_channels_than_a_block", {1, 300, 7, 6}, {130, 300, 3, 3}, {1}, {1}},
    {"strided_beyond_a_block", {2, 65, 13, 18}, {70, 65, 3, 3}, {2, 3}, {1, 2}},
    {"patches", {1, 3, 32, 48}, {33, 3, 16, 16}, {16}},
    {"depthwise_strided", {2, 37, 17, 16}, {37, 1, 3, 5}, {2, 3}, {1, 2}, {1}, 37},
    {"depthwise_dilated_strided", {1, 70, 13, 15}, {70, 1, 5, 3}, {2, 1}, {2, 1}, {1, 2}, 70},
    {"volume_depthwise", {1, 18, 5, 6, 7}, {18, 1, 3, 3, 3}, {2}, {1}, {1}, 18},
    {"phases_without_taps", {2, 20, 11, 12}, {24, 20, 2, 2}, {3}, {1}},
};

INSTANTIATE_TEST_SUITE_P(Conv, ConvTest,
                         ::testing::Combine(::testing::ValuesIn(kConvCases),
                                            ::testing::Values(Layout::row_major,
                                                              Layout::channels_last)),
                         [](const auto& info) {
                             return std::get<0>(info.param).name +
                                    (std::get<1>(info.param) == Layout::row_major ? "_rows"
                                                                                  : "_last");
                         });

// --- gradients of weights, whose sums are cut into strips, blocks and parts --------------------

Values naive_filter_gradient(const Values& x, const Values& dy, const ConvCase& c) {
    Values dw{{DType::f32, c.w}, std::vector<double>(static_cast<size_t>(c.w.numel()))};
    const Shape &in = c.x, &out = dy.type.shape;
    int64_t index = 0;
    for (int64_t o = 0; o < c.w[0]; ++o)
        for (int64_t i = 0; i < c.w[1]; ++i)
            for (int64_t k = 0; k < c.w[2]; ++k)
                for (int64_t l = 0; l < c.w[3]; ++l, ++index)
                    for (int64_t n = 0; n < in[0]; ++n)
                        for (int64_t r = 0; r < out[2]; ++r) {
                            const int64_t row =
                                r * at(c.stride, 0) - at(c.padding, 0) + k * at(c.dilation, 0);
                            if (row < 0 || row >= in[2]) continue;
                            for (int64_t q = 0; q < out[3]; ++q) {
                                const int64_t column =
                                    q * at(c.stride, 1) - at(c.padding, 1) + l * at(c.dilation, 1);
                                if (column < 0 || column >= in[3]) continue;
                                const int64_t channel = o / (c.w[0] / c.groups) * c.w[1] + i;
                                dw[index] +=
                                    x[((n * in[1] + channel) * in[2] + row) * in[3] + column] *
                                    dy[((n * out[1] + o) * out[2] + r) * out[3] + q];
                            }
                        }
    return dw;
}

class FilterGradient : public ::testing::TestWithParam<std::tuple<ConvCase, Layout, Layout>> {};

TEST_P(FilterGradient, IsThatOfPlainLoopsAndHasTheSameBitsForAnyNumberOfThreads) {
    const auto& [c, layout_of_x, layout_of_y] = GetParam();
    const Values x = random(c.x, 1, layout_of_x),
                 dy = random(run("conv", {x, random(c.w, 2)}, c.attrs())[0].type.shape, 3,
                             layout_of_y),
                 expected = naive_filter_gradient(x, dy, c);
    Attrs attrs = c.attrs();
    attrs.push_back(spatial(c.w));
    std::vector<Values> found;
    for (const int threads : {1, 2, 3, 8}) {
        runtime::set_thread_count(threads);
        found.push_back(run("conv_backward_filter", {x, dy}, attrs)[0]);
    }
    runtime::set_thread_count(0);
    const double places = static_cast<double>(dy.type.numel() / c.w[0]);
    // A sum has a part for each lane of a vector, and Arm's have four.
    const double each = runtime::is_arm(runtime::isa()) ? 2e-6 : 1e-6;
    for (int64_t i = 0; i < expected.type.numel(); ++i)
        ASSERT_NEAR(found[0][i], expected[i], each * std::sqrt(places)) << "at " << i;
    for (const Values& other : found) EXPECT_EQ(other.data, found[0].data);
}

const std::vector<ConvCase> kFilterCases = {
    {"images_in_a_block", {5, 17, 9, 7}, {33, 17, 3, 3}, {1}, {1}},
    {"rows_in_a_block", {3, 41, 71, 67}, {20, 41, 3, 3}, {1}, {1}},
    {"several_panels", {2, 70, 13, 11}, {150, 70, 3, 3}, {1}, {1}},
    {"large_sums", {2, 160, 9, 9}, {272, 160, 3, 3}, {2}, {1}},
    {"one_image", {1, 24, 31, 29}, {16, 24, 3, 3}, {2, 1}, {0, 1}},
    {"long_rows", {2, 6, 3, 401}, {10, 6, 3, 5}, {1, 2}, {1, 2}},
    {"dilated", {3, 19, 23, 24}, {21, 19, 3, 2}, {1, 2}, {2, 1}, {2, 3}},
    {"stem", {3, 3, 97, 90}, {40, 3, 7, 7}, {2}, {3}},
    {"padding_without_pixels", {2, 5, 4, 3}, {6, 5, 3, 3}, {3, 2}, {5, 4}},
    {"points_more_in", {3, 150, 41, 33}, {48, 150, 1, 1}},
    {"points_more_out", {3, 48, 41, 33}, {150, 48, 1, 1}},
    {"points_in_steps", {3, 72, 40, 39}, {100, 72, 1, 1}, {2}},
    {"points_in_steps_with_padding", {3, 20, 11, 12}, {30, 20, 1, 1}, {3, 2}, {2, 1}},
    {"many_points_of_many_channels", {2, 300, 23, 21}, {270, 300, 1, 1}},
    {"one_channel", {4, 1, 12, 12}, {1, 1, 3, 3}, {1}, {1}},
    {"depthwise5x5", {2, 19, 14, 15}, {19, 1, 5, 5}, {2}, {2}, {1}, 19},
    {"depthwise7x7", {3, 48, 23, 70}, {48, 1, 7, 7}, {1}, {3}, {1}, 48},
    {"depthwise9x9", {2, 16, 11, 12}, {16, 1, 9, 9}, {1}, {4}, {1}, 16},
    {"depthwise3x5", {3, 37, 13, 11}, {37, 1, 3, 5}, {1}, {1, 2}, {1}, 37},
    {"depthwise_of_one_image", {1, 64, 41, 29}, {64, 1, 3, 4}, {2, 1}, {1, 0}, {1}, 64},
    {"depthwise_of_many_pixels", {1, 24, 113, 101}, {24, 1, 2, 4}, {2}, {1}, {1}, 24},
    {"depthwise_dilated", {2, 33, 17, 16}, {33, 1, 3, 3}, {2, 1}, {2, 3}, {2, 3}, 33},
    {"depthwise_points", {3, 20, 9, 14}, {20, 1, 1, 4}, {2}, {1}, {1}, 20},
    {"depthwise_long_rows", {2, 6, 2, 401}, {6, 1, 2, 6}, {1, 2}, {1, 2}, {1}, 6},
    {"depthwise_tall", {2, 24, 40, 5}, {24, 1, 11, 2}, {1}, {10, 1}, {2, 1}, 24},
    {"depthwise_padding_without_pixels", {2, 5, 4, 3}, {5, 1, 3, 4}, {3, 2}, {5, 4}, {1}, 5},
    {"groups_of_2", {3, 30, 13, 12}, {30, 2, 3, 3}, {1}, {1}, {1}, 15},
    {"groups_of_4", {3, 44, 15, 13}, {44, 4, 3, 3}, {1}, {1}, {1}, 11},
    {"groups_of_4_to_2", {2, 24, 9, 8}, {12, 4, 5, 5}, {1}, {2}, {1}, 6},
    {"groups_of_8_in_steps", {2, 48, 19, 20}, {48, 8, 3, 3}, {2}, {1}, {1}, 6},
    {"groups_of_16", {2, 48, 9, 8}, {48, 16, 3, 5}, {1}, {1, 2}, {1}, 3},
    {"groups_of_32_dilated", {2, 64, 11, 9}, {64, 32, 3, 3}, {1}, {2}, {2}, 2},
};

INSTANTIATE_TEST_SUITE_P(
    Conv, FilterGradient,
    ::testing::Combine(::testing::ValuesIn(kFilterCases),
                       ::testing::Values(Layout::row_major, Layout::channels_last),
                       ::testing::Values(Layout::row_major, Layout::channels_last)),
    [](const auto& info) {
        const auto name = [](Layout layout) {
            return layout == Layout::row_major ? "_rows" : "_last";
        };
        return std::get<0>(info.param).name + name(std::get<1>(info.param)) +
               name(std::get<2>(info.param));
    });

TEST(Conv, ReadsOneLayoutAndWritesTheOther) {
    const ConvCase c{"", {2, 8, 9, 9}, {16, 8, 3, 3}, {1}, {1}};
    const Values x = random(c.x, 1), w = random(c.w, 2);
    expect_near(run("conv", {x, w}, c.attrs(), {Layout::channels_last})[0], naive_conv(x, w, c),
                1e-4);
}

TEST(Conv, ComputesHalfPrecisionWithFloatAccumulation) {
    const ConvCase c{"", {2, 8, 9, 9}, {16, 8, 3, 3}, {1}, {1}};
    for (const DType dtype : {DType::f16, DType::bf16})
        for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
            const Values x = random({dtype, c.x, layout}, 1), w = random({dtype, c.w}, 2);
            expect_near(run("conv", {x, w}, c.attrs())[0], naive_conv(x, w, c),
                        dtype == DType::f16 ? 2e-3 : 2e-2);
        }
}

TEST(Conv, OfAnEmptyBatchIsEmptyAndGivesAZeroFilterGradient) {
    const Values x = random(Shape{0, 3, 5, 5}, 1), w = random(Shape{4, 3, 3, 3}, 2);
    EXPECT_EQ(run("conv", {x, w}, {Ints{1}, Ints{0}, Ints{1}, int64_t{1}})[0].type.shape,
              (Shape{0, 4, 3, 3}));
    const Values dy = random(Shape{0, 4, 3, 3}, 1);
    const Values dw =
        run("conv_backward_filter", {x, dy}, {Ints{1}, Ints{0}, Ints{1}, int64_t{1}, Ints{3}})[0];
    for (double value : dw.data) ASSERT_EQ(value, 0);
}

TEST(Conv, BackwardDataReachesEveryExtentThatRoundsDownToTheSame) {
    const Values dy = random(Shape{1, 2, 3, 3}, 1), w = random(Shape{2, 3, 3, 3}, 2);
    const Values dx =
        run("conv_backward_data", {dy, w}, {Ints{2}, Ints{0}, Ints{1}, int64_t{1}, Ints{8, 7}})[0];
    EXPECT_EQ(dx.type.shape, (Shape{1, 3, 8, 7}));
    for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(dx[7 * 7 + i], 0);  // no window reaches the last row
}

TEST(Conv, RefusesChannelsThatDoNotFit) {
    const std::string message = message_of([] {
        run("conv", {random(Shape{1, 3, 8, 8}, 1), random(Shape{4, 5, 3, 3}, 2)},
            {Ints{1}, Ints{0}, Ints{1}, int64_t{1}});
    });
    EXPECT_NE(message.find("conv: cannot take f32[1, 3, 8, 8] and f32[4, 5, 3, 3]"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("x has 3 channels"), std::string::npos) << message;
}

TEST(Conv, RefusesAKernelLargerThanTheInput) {
    const std::string message = message_of([] {
        run("conv", {random(Shape{1, 3, 2, 2}, 1), random(Shape{4, 3, 3, 3}, 2)},
            {Ints{1}, Ints{0}, Ints{1}, int64_t{1}});
    });
    EXPECT_NE(message.find("does not fit into"), std::string::npos) << message;
}

TEST(Relayout, MovesEveryElementThereAndBack) {
    const Values x = random(Shape{2, 33, 5, 7}, 1);
    const Values last = run("relayout", {x}, {std::string("channels_last")})[0];
    EXPECT_EQ(last.type.layout, Layout::channels_last);
    EXPECT_EQ(last.data, x.data);
    EXPECT_EQ(run("relayout", {last}, {std::string("row_major")})[0].data, x.data);
}

}}  // namespace megjit::testing
