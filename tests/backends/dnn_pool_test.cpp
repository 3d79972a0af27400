// Pooling against plain loops in double; gradients as adjoints of what the forward op picked.
#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

struct PoolCase {
    std::string name = {};
    Shape x = {};
    Ints kernel = {}, stride = {},
         padding = {};  // adaptive: kernel holds the output extents, stride is empty
    bool adaptive() const { return stride.empty(); }
    Attrs attrs() const { return adaptive() ? Attrs{kernel} : Attrs{kernel, stride, padding}; }
};

// Calls visit(output index, input indices of its window) for every window, in row-major order.
template <class Visit>
Shape each_window(const PoolCase& c, const Visit& visit) {
    const int dims = c.x.rank() - 2;
    int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
    Shape y{c.x[0], c.x[1]};
    for (int axis = 0; axis < dims; ++axis) {
        const int i = 3 - dims + axis;
        in[i] = c.x[axis + 2];
        out[i] =
            c.adaptive()
                ? at(c.kernel, axis)
                : (in[i] + 2 * at(c.padding, axis) - at(c.kernel, axis)) / at(c.stride, axis) + 1;
        y.push_back(out[i]);
    }
    const auto range = [&](int i, int64_t o) -> std::pair<int64_t, int64_t> {
        const int axis = i - (3 - dims);
        if (axis < 0) return {0, 1};
        if (c.adaptive()) return {o * in[i] / out[i], ((o + 1) * in[i] + out[i] - 1) / out[i]};
        const int64_t begin = o * at(c.stride, axis) - at(c.padding, axis);
        return {std::max<int64_t>(begin, 0), std::min(begin + at(c.kernel, axis), in[i])};
    };
    int64_t index = 0;
    for (int64_t plane = 0; plane < c.x[0] * c.x[1]; ++plane)
        for (int64_t o0 = 0; o0 < out[0]; ++o0)
            for (int64_t o1 = 0; o1 < out[1]; ++o1)
                for (int64_t o2 = 0; o2 < out[2]; ++o2, ++index) {
                    const auto [d0, d1] = range(0, o0);
                    const auto [h0, h1] = range(1, o1);
                    const auto [w0, w1] = range(2, o2);
                    Ints places;
                    for (int64_t d = d0; d < d1; ++d)
                        for (int64_t h = h0; h < h1; ++h)
                            for (int64_t w = w0; w < w1; ++w)
                                places.push_back(((plane * in[0] + d) * in[1] + h) * in[2] + w);
                    visit(index, places);
                }
    return y;
}

int64_t first_largest(const Values& x, const Ints& places) {
    int64_t best = places[0];
    for (int64_t place : places)
        if (x[place] > x[best] || (std::isnan(x[place]) && !std::isnan(x[best]))) best = place;
    return best;
}

class PoolTest : public ::testing::TestWithParam<std::tuple<PoolCase, Layout>> {};

TEST_P(PoolTest, MaxTakesTheFirstLargestAndReturnsItsGradientThere) {
    const auto& [c, layout] = GetParam();
    const std::string name = c.adaptive() ? "adaptive_max_pool" : "max_pool";
    Values x = random(c.x, 1, layout);
    for (double& value : x.data) value = std::round(value * 4) / 4;  // many ties
    if (x.data.size() > 20) x[7] = NAN, x[8] = NAN;
    const Values y = run(name, {x}, c.attrs())[0];
    const Values dy = random({DType::f32, y.type.shape, layout}, 2);
    Values expected = y, gradient{x.type, std::vector<double>(x.data.size())}, picked = y;
    const Values v = random({DType::f32, c.x, layout}, 3);
    const Shape shape = each_window(c, [&](int64_t o, const Ints& places) {
        const int64_t best = first_largest(x, places);
        expected[o] = x[best];
        gradient[best] += dy[o];
        picked[o] = v[best];
    });
    ASSERT_EQ(y.type.shape, shape);
    expect_near(y, expected, 0, "y");
    expect_near(run(name + "_grad", {x, dy}, c.attrs())[0], gradient, 1e-6, "dx");
    expect_near(run(name + "_pick", {x, v}, c.attrs())[0], picked, 0, "pick");
}

TEST_P(PoolTest, AverageIsTheMeanAndItsGradientTheAdjoint) {
    const auto& [c, layout] = GetParam();
    for (const int64_t include : {0, 1}) {
        if (c.adaptive() && include) continue;
        Attrs attrs = c.attrs();
        if (!c.adaptive()) attrs.push_back(include);
        const std::string name = c.adaptive() ? "adaptive_avg_pool" : "avg_pool";
        const Values x = random(c.x, 1, layout), y = run(name, {x}, attrs)[0];
        double size = 1;
        for (int axis = 0; axis < c.x.rank() - 2; ++axis)
            size *= static_cast<double>(at(c.kernel, axis));
        Values expected = y, gradient{x.type, std::vector<double>(x.data.size())};
        const Values dy = random({DType::f32, y.type.shape, layout}, 2);
        each_window(c, [&](int64_t o, const Ints& places) {
            const double weight = 1 / (include ? size : static_cast<double>(places.size()));
            expected[o] = 0;
            for (int64_t place : places)
                expected[o] += x[place] * weight, gradient[place] += dy[o] * weight;
        });
        expect_near(y, expected, 1e-5, "y");
        const Ints extents(c.x.begin() + 2, c.x.end());
        if (c.adaptive()) attrs = {extents};
        else attrs.push_back(extents);
        expect_near(run(name + "_grad", {dy}, attrs)[0], gradient, 1e-5, "dx");
    }
}

const std::vector<PoolCase> kPoolCases = {
    {"halves", {2, 3, 8, 8}, {2}, {2}, {0}},
    {"stem", {2, 17, 13, 11}, {3}, {2}, {1}},
    {"overlapping", {1, 5, 9, 40}, {3, 4}, {1}, {1, 2}},
    {"uneven", {2, 70, 10, 7}, {2, 3}, {3, 1}, {0, 1}},
    {"line", {2, 4, 37}, {3}, {2}, {1}},
    {"volume", {1, 18, 5, 6, 7}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0}},
    {"whole", {3, 20, 7, 7}, {7}, {1}, {0}},
    {"adaptive_even", {2, 6, 8, 8}, {4}, {}, {}},
    {"adaptive_odd", {2, 19, 7, 10}, {3, 4}, {}, {}},
    {"adaptive_larger", {1, 3, 3, 5}, {5, 7}, {}, {}},
    {"adaptive_global", {2, 33, 6, 5}, {1}, {}, {}},
    {"adaptive_line", {2, 3, 11}, {4}, {}, {}},
};

INSTANTIATE_TEST_SUITE_P(Pool, PoolTest,
                         ::testing::Combine(::testing::ValuesIn(kPoolCases),
                                            ::testing::Values(Layout::row_major,
                                                              Layout::channels_last)),
                         [](const auto& info) {
                             return std::get<0>(info.param).name +
                                    (std::get<1>(info.param) == Layout::row_major ? "_rows"
                                                                                  : "_last");
                         });

TEST(Pool, OfHalvesAndEmptyBatchesWorks) {
    const Values x = random({DType::f16, {2, 3, 4, 4}}, 1);
    EXPECT_EQ(run("max_pool", {x}, {Ints{4}, Ints{4}, Ints{0}})[0][0],
              *std::max_element(x.data.begin(), x.data.begin() + 16));
    EXPECT_EQ(
        run("avg_pool", {random(Shape{0, 3, 4, 4}, 1)}, {Ints{2}, Ints{2}, Ints{0}, int64_t{0}})[0]
            .type.shape,
        (Shape{0, 3, 2, 2}));
}

TEST(Pool, RefusesPaddingAsLargeAsTheKernel) {
    const std::string message = message_of(
        [] { run("max_pool", {random(Shape{1, 1, 4, 4}, 1)}, {Ints{2}, Ints{2}, Ints{2}}); });
    EXPECT_NE(message.find("padding 2 is not smaller than the kernel 2"), std::string::npos)
        << message;
}

}}  // namespace megjit::testing
