// The integers of quantized_conv against sums in int64, at whatever level of instructions this
// program runs.
#include <cmath>
#include <random>

#include "runtime/host/parallel.h"
#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

struct Case {
    Shape x, w;
    int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
    DType x_dtype = DType::i8;
    std::string y_dtype = "int8";
    bool relu = false, per_channel = true;
    Layout layout = Layout::row_major;
};

Values whole_numbers(const Type& type, int low, int high, unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_int_distribution<int> uniform(low, high);
    Values values{type, std::vector<double>(static_cast<size_t>(type.numel()))};
    for (double& value : values.data) value = uniform(generator);
    return values;
}

// The pixel of x under one place of the window, for up to three spatial axes; 0 outside.
double pixel(const Values& x, const Case& c, int64_t image, int64_t channel, const Ints& place,
             const Ints& offset) {
    int64_t at = image * x.type.shape[1] + channel;
    for (size_t axis = 0; axis < place.size(); ++axis) {
        const int64_t i = place[axis] * c.stride - c.padding + offset[axis] * c.dilation,
                      extent = x.type.shape[static_cast<int>(axis) + 2];
        if (i < 0 || i >= extent) return 0;
        at = at * extent + i;
    }
    return x[at];
}

Ints unravel(int64_t index, const Shape& shape, int first) {
    Ints place(static_cast<size_t>(shape.rank() - first));
    for (int axis = shape.rank() - 1; axis >= first; --axis) {
        place[static_cast<size_t>(axis - first)] = index % shape[axis];
        index /= shape[axis];
    }
    return place;
}

int64_t accumulated(const Values& x, const Values& w, const Case& c, int64_t image, int64_t channel,
                    const Ints& place) {
    const int64_t ic = w.type.shape[1], group = channel / (w.type.shape[0] / c.groups),
                  taps = w.type.numel() / (w.type.shape[0] * ic);
    int64_t sum = 0;
    for (int64_t i = 0; i < ic; ++i)
        for (int64_t tap = 0; tap < taps; ++tap)
            sum += static_cast<int64_t>(
                pixel(x, c, image, group * ic + i, place, unravel(tap, w.type.shape, 2)) *
                w[(channel * ic + i) * taps + tap]);
    return sum;
}

double finished(int64_t sum, float scale, float bias, const Case& c) {
    float y = static_cast<float>(sum) * scale;
    y += bias;
    if (c.relu) y = std::max(y, 0.0f);
    if (c.y_dtype == "float32") return static_cast<double>(y);
    const bool is_signed = c.y_dtype == "int8";
    return static_cast<double>(
        std::nearbyint(std::clamp(y, is_signed ? -128.0f : 0.0f, is_signed ? 127.0f : 255.0f)));
}

void expect_exact(const Case& c) {
    const Values x = whole_numbers({c.x_dtype, c.x, c.layout}, c.x_dtype == DType::i8 ? -128 : 0,
                                   c.x_dtype == DType::i8 ? 127 : 255, 1);
    const Values w = whole_numbers({DType::i8, c.w}, -128, 127, 2);
    const int64_t oc = c.w[0], depth = c.w.numel() / oc;
    Values scale = random({DType::f32, Shape{c.per_channel ? oc : 1}}, 3),
           bias = random({DType::f32, Shape{oc}}, 4);
    for (double& v : scale.data)
        v = static_cast<double>(
            static_cast<float>((v + 1.5) / (150 * std::sqrt(static_cast<double>(depth)))));
    for (double& v : bias.data) v = static_cast<double>(static_cast<float>(20 * v));
    const Attrs attrs{Ints{c.stride}, Ints{c.padding}, Ints{c.dilation},
                      c.groups,       int64_t{c.relu}, c.y_dtype};
    const Values y = run("quantized_conv", {x, w, scale, bias}, attrs)[0];
    int64_t spatial = 1, wrong = 0;
    for (int axis = 2; axis < y.type.rank(); ++axis) spatial *= y.type.shape[axis];
    for (int64_t i = 0; i < y.type.numel(); ++i) {
        const int64_t channel = i / spatial % oc;
        const int64_t sum = accumulated(x, w, c, i / (spatial * oc), channel,
                                        unravel(i % spatial, y.type.shape, 2));
        const double want = finished(sum, static_cast<float>(scale[c.per_channel ? channel : 0]),
                                     static_cast<float>(bias[channel]), c);
        if (y[i] != want && ++wrong < 4)
            ADD_FAILURE() << "element " << i << " is " << y[i] << ", not " << want
                          << "; the sum is " << sum;
    }
    EXPECT_EQ(wrong, 0);
}

TEST(QuantizedConv, ChannelsThatFillPanels) { expect_exact({{2, 64, 9, 9}, {64, 64, 3, 3}, 1, 1}); }
TEST(QuantizedConv, FewChannels) { expect_exact({{1, 3, 11, 13}, {7, 3, 3, 5}, 2, 1}); }
TEST(QuantizedConv, AnOddNumberOfProducts) { expect_exact({{1, 5, 6, 6}, {33, 5, 3, 3}, 1, 1}); }
TEST(QuantizedConv, ManyProducts) { expect_exact({{1, 300, 4, 4}, {40, 300, 3, 3}, 1, 1}); }
TEST(QuantizedConv, ManyOutputChannels) { expect_exact({{1, 16, 5, 5}, {300, 16, 1, 1}}); }
TEST(QuantizedConv, ManyPlaces) { expect_exact({{1, 4, 40, 40}, {8, 4, 3, 3}, 1, 1}); }
TEST(QuantizedConv, Dilation) { expect_exact({{1, 8, 12, 12}, {8, 8, 3, 3}, 1, 2, 2}); }
TEST(QuantizedConv, Groups) { expect_exact({{2, 12, 7, 7}, {18, 4, 3, 3}, 2, 1, 1, 3}); }
TEST(QuantizedConv, Depthwise) { expect_exact({{2, 150, 7, 7}, {150, 1, 3, 3}, 1, 1, 1, 150}); }
TEST(QuantizedConv, DepthwiseChannelsLast) {
    expect_exact({.x = {1, 32, 9, 9},
                  .w = {32, 1, 3, 3},
                  .stride = 2,
                  .padding = 1,
                  .groups = 32,
                  .layout = Layout::channels_last});
}
TEST(QuantizedConv, ALinearLayer) { expect_exact({{5, 100, 1, 1}, {10, 100, 1, 1}}); }
// Products of few rows are sums by several instructions, whose terms have tails of their own.
TEST(QuantizedConv, FewRowsOfAnyNumber) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 9, 12})
        for (const int64_t terms : {1, 31, 64, 100, 191})
            for (const DType dtype : {DType::i8, DType::u8})
                expect_exact({.x = {rows, terms, 1, 1},
                              .w = {33, terms, 1, 1},
                              .x_dtype = dtype,
                              .y_dtype = "float32"});
}
TEST(QuantizedConv, OneSpatialAxis) { expect_exact({{2, 6, 20}, {8, 6, 5}, 2, 2}); }
TEST(QuantizedConv, ThreeSpatialAxes) { expect_exact({{1, 4, 5, 6, 7}, {8, 4, 3, 2, 3}, 1, 1}); }
TEST(QuantizedConv, UnsignedInput) {
    expect_exact({.x = {1, 32, 8, 8}, .w = {32, 32, 3, 3}, .padding = 1, .x_dtype = DType::u8});
}
TEST(QuantizedConv, UnsignedResult) {
    expect_exact(
        {.x = {1, 32, 8, 8}, .w = {32, 32, 3, 3}, .padding = 1, .y_dtype = "uint8", .relu = true});
}
TEST(QuantizedConv, FloatResult) {
    expect_exact({.x = {1, 32, 8, 8}, .w = {20, 32, 3, 3}, .padding = 1, .y_dtype = "float32"});
}
TEST(QuantizedConv, OneScale) {
    expect_exact({.x = {1, 32, 8, 8}, .w = {20, 32, 3, 3}, .padding = 1, .per_channel = false});
}
TEST(QuantizedConv, ChannelsLast) {
    expect_exact(
        {.x = {2, 24, 9, 7}, .w = {40, 24, 3, 3}, .padding = 1, .layout = Layout::channels_last});
}
TEST(QuantizedConv, OneThread) {
    runtime::set_thread_count(1);
    expect_exact({{2, 64, 9, 9}, {64, 64, 3, 3}, 1, 1});
    runtime::set_thread_count(0);
}

}}  // namespace megjit::testing
