// Ops that move elements, against naive loops over random shapes.
#include <complex>

#include "tests/backends/tensor_testing.h"

namespace megjit::testing { namespace {

class Copies : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Copies, ::testing::Range(0u, 60u));

Type drawn_type(Dice& dice, int rank, int64_t largest = 6) {
    return {kRealTypes[static_cast<size_t>(dice.below(9))], dice.shape(rank, largest)};
}
Ints as_ints(const Shape& shape) { return {shape.begin(), shape.end()}; }

TEST_P(Copies, TransposePutsEveryElementInItsPlace) {
    Dice dice(GetParam());
    const int rank = static_cast<int>(dice.below(9));
    const Values x = dice.values(drawn_type(dice, rank,
                                            rank > 4    ? 3
                                            : rank == 2 ? 150
                                                        : 40 / std::max(1, rank)));
    Ints perm;
    for (int i = 0; i < rank; ++i) perm.insert(perm.begin() + dice.below(i + 1), i);
    const Values y = run_twice("transpose", {x}, {perm})[0];
    for_each_place(y.type.shape, [&](const Ints& at) {
        Ints from(at.size());
        for (size_t i = 0; i < at.size(); ++i) from[static_cast<size_t>(perm[i])] = at[i];
        ASSERT_EQ(y[flat(y.type.shape, at)], x[flat(x.type.shape, from)]) << "seed " << GetParam();
    });
}

TEST_P(Copies, BroadcastRepeatsAxes) {
    Dice dice(GetParam());
    const Shape wide = dice.shape(static_cast<int>(dice.below(6)), 7);
    Shape narrow;
    for (int i = static_cast<int>(dice.below(wide.rank() + 1)); i < wide.rank(); ++i)
        narrow.push_back(dice.chance(0.5) ? 1 : wide[i]);
    const Values x = dice.values({kRealTypes[static_cast<size_t>(dice.below(9))], narrow});
    const Values y = run_twice("broadcast_to", {x}, {as_ints(wide)})[0];
    for_each_place(wide, [&](const Ints& at) {
        Ints from;
        for (int i = 0; i < narrow.rank(); ++i)
            from.push_back(
                narrow[i] == 1 ? 0 : at[static_cast<size_t>(i + wide.rank() - narrow.rank())]);
        ASSERT_EQ(y[flat(wide, at)], x[flat(narrow, from)]) << "seed " << GetParam();
    });
}

// A region of `shape`: begin, end, step.
Attrs drawn_region(Dice& dice, const Shape& shape) {
    Ints begin, end, step;
    for (const int64_t n : shape) {
        const int64_t a = dice.below(n + 1), b = dice.below(n + 1), size = dice.between(1, 3);
        if (n == 0 || dice.chance(0.6))
            begin.push_back(std::min(a, b)), end.push_back(std::max(a, b)), step.push_back(size);
        else
            begin.push_back(std::max(a, b) - (std::max(a, b) == n)),
                end.push_back(std::min(a, b) - 1), step.push_back(-size);
    }
    return {begin, end, step};
}

TEST_P(Copies, SliceReadsAndSliceSetWritesTheSameRegion) {
    Dice dice(GetParam());
    const Values x = dice.values(drawn_type(dice, static_cast<int>(dice.below(6)), 9));
    const Attrs region = drawn_region(dice, x.type.shape);
    const Values y = run_twice("slice", {x}, region)[0];
    const Values value = dice.values(y.type),
                 written = run_twice("slice_set", {x, value}, region)[0];
    std::vector<double> expected = x.data;
    for_each_place(y.type.shape, [&](const Ints& at) {
        Ints from;
        for (size_t i = 0; i < at.size(); ++i)
            from.push_back(std::get<Ints>(region[0])[i] + at[i] * std::get<Ints>(region[2])[i]);
        const int64_t place = flat(x.type.shape, from);
        ASSERT_EQ(y[flat(y.type.shape, at)], x[place]) << "seed " << GetParam();
        expected[static_cast<size_t>(place)] = value[flat(y.type.shape, at)];
    });
    expect_same(written, expected, cat("slice_set, seed ", GetParam()));
}

TEST_P(Copies, ConcatJoinsWhatSliceTakesApart) {
    Dice dice(GetParam());
    const Values x = dice.values(drawn_type(dice, static_cast<int>(dice.between(1, 5)), 9));
    const auto axis = static_cast<size_t>(dice.below(x.type.rank()));
    const int64_t n = x.type.shape[static_cast<int>(axis)], cut = dice.below(n + 1);
    Ints begin(static_cast<size_t>(x.type.rank()), 0), end = as_ints(x.type.shape);
    const Ints step(begin.size(), 1);
    end[axis] = cut;
    std::vector<Values> parts = run_any("slice", {x}, {begin, end, step});
    begin[axis] = cut;
    end[axis] = n;
    if (n > 0 && cut < n) parts.push_back(run_any("slice", {x}, {begin, end, step})[0]);
    expect_same(run_twice("concat", parts, {static_cast<int64_t>(axis)})[0], x.data,
                cat("seed ", GetParam()));
}

int64_t mirrored(int64_t i, int64_t n, const std::string& mode) {
    if (i >= 0 && i < n) return i;
    if (mode == "constant") return -1;
    if (mode == "edge") return std::clamp<int64_t>(i, 0, n - 1);
    return i < 0 ? -i : 2 * n - 2 - i;
}

TEST_P(Copies, PadAndItsGradientFollowEachElementToItsSource) {
    Dice dice(GetParam());
    const std::string mode = std::array{"constant", "edge", "reflect"}[GetParam() % 3];
    Shape shape;
    Ints before, after;
    for (int i = static_cast<int>(dice.below(5)); i > 0; --i) {
        shape.push_back(dice.between(1, 6));
        const int64_t most = mode == "reflect" ? shape[shape.rank() - 1] - 1 : 4;
        before.push_back(dice.between(0, most));
        after.push_back(dice.between(0, most));
    }
    const Values x = dice.values({DType::f32, shape});
    const Values y = run_twice("pad", {x}, {before, after, mode, 2.5})[0];
    std::vector<double> gradient(x.data.size(), 0.0);
    const Values dy = dice.values(y.type);
    for_each_place(y.type.shape, [&](const Ints& at) {
        Ints from;
        bool outside = false;
        for (size_t i = 0; i < at.size(); ++i) {
            from.push_back(mirrored(at[i] - before[i], shape[static_cast<int>(i)], mode));
            outside = outside || from.back() < 0;
        }
        ASSERT_EQ(y[flat(y.type.shape, at)], outside ? 2.5 : x[flat(shape, from)])
            << mode << ", seed " << GetParam();
        if (!outside)
            gradient[static_cast<size_t>(flat(shape, from))] += dy[flat(y.type.shape, at)];
    });
    if (mode != "constant")
        expect_near(run_twice("pad_grad", {dy}, {before, after, mode})[0], {x.type, gradient}, 1e-5,
                    cat("seed ", GetParam()));
}

TEST(Copy, LargeTransposesOfEveryElementSizeAgreeOnTwoThreads) {
    Dice dice(1);
    for (const DType dtype : {DType::f32, DType::f16, DType::u8}) {
        const Values x = dice.values({dtype, {3, 517, 261}}),
                     y = run_twice("transpose", {x}, {Ints{0, 2, 1}})[0];
        for_each_place(y.type.shape, [&](const Ints& at) {
            ASSERT_EQ(y[flat(y.type.shape, at)], x[flat(x.type.shape, {at[0], at[2], at[1]})]);
        });
    }
}

TEST(Copy, FullGivesOneValueInEveryDtype) {
    for (const DType dtype : kRealTypes) {
        const Values y = run_twice("full", {}, {Ints{2, 3}, 3.0, std::string(info(dtype).name)})[0];
        expect_same(y, std::vector<double>(6, dtype == DType::b8 ? 1 : 3),
                    std::string(info(dtype).name));
    }
}

TEST(Copy, ComplexNumbersKeepTheirPartsThroughCopies) {
    runtime::Device& cpu = device();
    const Type type{DType::c64, {2, 3}};
    std::vector<Type> types = {type};
    const Attrs attrs = {Ints{1, 0}};
    const runtime::OpCall call{runtime::find_op("transpose"), attrs, types};
    const auto outputs = runtime::infer(call);
    const std::vector<std::complex<float>> x = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}};
    std::vector<std::complex<float>> y(6);
    void* in[] = {const_cast<std::complex<float>*>(x.data())};
    void* out[] = {y.data()};
    cpu.prepare(call, outputs)->enqueue(runtime::inline_stream(), in, out, nullptr);
    EXPECT_EQ(y, (std::vector<std::complex<float>>{x[0], x[3], x[1], x[4], x[2], x[5]}));
}

std::string message_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const runtime::UserError& error) { return error.what(); }
    return "no error";
}

TEST(CopyErrors, NameTheRuleAndTheValues) {
    const Values x{{DType::f32, {2, 3}}, std::vector<double>(6)};
    EXPECT_NE(message_of([&] {
        run_any("transpose", {x}, {Ints{0, 0}});
    }).find("[0, 0] must name each of 2 axes once"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
        run_any("broadcast_to", {x}, {Ints{4, 2, 4}});
    }).find("each trailing extent of [2, 3] is 1 or that of [4, 2, 4]"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
        run_any("slice", {x}, {Ints{0, 3}, Ints{2, 9}, Ints{1, 1}});
    }).find("3:9:1 leaves axis 1 of extent 3"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
        run_any("pad", {x}, {Ints{0, 3}, Ints{0, 0}, std::string("reflect"), 0.0});
    }).find("mode reflect cannot make 3"),
              std::string::npos);
}

}}  // namespace megjit::testing
