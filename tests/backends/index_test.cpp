// Reading and writing at places given by tensors, against naive loops.
#include "runtime/eager/dispatch.h"
#include "tests/backends/tensor_testing.h"

namespace megjit::testing { namespace {

class Indexing : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Indexing, ::testing::Range(0u, 60u));

struct Access {
    Values x;
    Ints axes;
    std::vector<Values> indices;
    Attrs attrs() const { return {axes}; }
};

Access drawn_access(Dice& dice, DType dtype) {
    const int rank = static_cast<int>(dice.between(1, 5));
    Shape shape = dice.shape(rank, 5);
    for (int i = 0; i < rank; ++i) shape[i] = std::max<int64_t>(1, shape[i]);
    Access a{.x = dice.values({dtype, shape}), .axes = {}, .indices = {}};
    const Shape places = dice.shape(static_cast<int>(dice.below(3)), 5);
    for (int i = 0; i < rank; ++i) {
        if (!dice.chance(0.5) && !(i == rank - 1 && a.axes.empty())) continue;
        if (a.axes.size() + 1 > 3) break;
        a.axes.push_back(i);
        Shape own = places;
        for (int k = 0; k < own.rank(); ++k)
            if (dice.chance(0.2) && own[k] > 0) own[k] = 1;
        a.indices.push_back(dice.places(own, shape[i]));
    }
    return a;
}

// Calls use(place in the result, place in x) in row-major order of the result.
void for_each_access(const Access& a, const Shape& result,
                     const std::function<void(int64_t, int64_t)>& use) {
    Shape places;
    for (const Values& index : a.indices) places = *broadcast(places, index.type.shape);
    bool adjacent = true;
    for (size_t k = 1; k < a.axes.size(); ++k)
        adjacent = adjacent && a.axes[k] == a.axes[k - 1] + 1;
    const int64_t front = adjacent ? a.axes[0] : 0;
    for_each_place(result, [&](const Ints& at) {
        Ints from(static_cast<size_t>(a.x.type.rank()), -1);
        for (size_t k = 0; k < a.axes.size(); ++k) {
            const Shape& shape = a.indices[k].type.shape;
            Ints place;
            for (int i = 0; i < shape.rank(); ++i) {
                const int64_t own =
                    at[static_cast<size_t>(front + i + places.rank() - shape.rank())];
                place.push_back(shape[i] == 1 ? 0 : own);
            }
            const auto value = static_cast<int64_t>(a.indices[k][flat(shape, place)]);
            from[static_cast<size_t>(a.axes[k])] =
                value < 0 ? value + a.x.type.shape[static_cast<int>(a.axes[k])] : value;
        }
        size_t next = 0;
        for (int64_t& place : from) {
            if (place >= 0) continue;
            if (static_cast<int64_t>(next) == front) next += static_cast<size_t>(places.rank());
            place = at[next++];
        }
        use(flat(result, at), flat(a.x.type.shape, from));
    });
}

TEST_P(Indexing, GetSetAndAddAgreeWithAPlainLoop) {
    Dice dice(GetParam());
    const DType dtype = kRealTypes[GetParam() % 8];
    const Access a = drawn_access(dice, dtype);
    const std::string what = cat("seed ", GetParam());
    std::vector<Values> inputs = {a.x};
    inputs.insert(inputs.end(), a.indices.begin(), a.indices.end());
    const Values y = run_twice("index_get", inputs, a.attrs())[0], value = dice.values(y.type);
    std::vector<double> set = a.x.data, add = a.x.data;
    for_each_access(a, y.type.shape, [&](int64_t to, int64_t from) {
        ASSERT_EQ(y[to], a.x[from]) << what;
        set[static_cast<size_t>(from)] = value[to];
        add[static_cast<size_t>(from)] += value[to];
    });
    inputs.insert(inputs.begin() + 1, value);
    expect_same(run_twice("index_set", inputs, a.attrs())[0], set, what);
    const Values sums = run_twice("index_add", inputs, a.attrs())[0];
    if (dtype == DType::f32) expect_near(sums, {a.x.type, add}, 1e-5, what);
    else if (dtype == DType::i32) expect_same(sums, add, what);
    else if (dtype == DType::f16) expect_near(sums, {a.x.type, add}, 0x1p-9, what);
    else if (dtype == DType::bf16) expect_near(sums, {a.x.type, add}, 0x1p-6, what);
}

TEST_P(Indexing, GatherAndScatterWorkAlongOneAxis) {
    Dice dice(GetParam());
    Shape shape = dice.shape(static_cast<int>(dice.between(1, 4)), 7);
    for (int i = 0; i < shape.rank(); ++i) shape[i] = std::max<int64_t>(1, shape[i]);
    const auto axis = static_cast<size_t>(dice.below(shape.rank()));
    Shape places = shape;
    for (int i = 0; i < shape.rank(); ++i) places[i] = dice.between(1, shape[i]);
    places[static_cast<int>(axis)] = dice.between(0, 9);
    const Values x = dice.values({DType::f32, shape}),
                 index = dice.places(places, shape[static_cast<int>(axis)]);
    const Attrs attrs = {static_cast<int64_t>(axis)};
    const Values y = run_twice("gather", {x, index}, attrs)[0], source = dice.values(y.type);
    std::vector<double> set = x.data, add = x.data, largest = x.data, smallest = x.data,
                        product = x.data;
    for_each_place(places, [&](Ints at) {
        const int64_t to = flat(places, at), place = static_cast<int64_t>(index[to]);
        at[axis] = place < 0 ? place + shape[static_cast<int>(axis)] : place;
        const int64_t from = flat(shape, at);
        ASSERT_EQ(y[to], x[from]) << "seed " << GetParam();
        set[static_cast<size_t>(from)] = source[to];
        add[static_cast<size_t>(from)] += source[to];
        largest[static_cast<size_t>(from)] =
            std::max(largest[static_cast<size_t>(from)], source[to]);
        smallest[static_cast<size_t>(from)] =
            std::min(smallest[static_cast<size_t>(from)], source[to]);
        product[static_cast<size_t>(from)] *= source[to];
    });
    const auto reduced = [&](const char* mode) {
        return run_twice("scatter_reduce", {x, index, source},
                         {static_cast<int64_t>(axis), std::string(mode)})[0];
    };
    expect_same(reduced("max"), largest, cat("largest, seed ", GetParam()));
    expect_same(reduced("min"), smallest, cat("smallest, seed ", GetParam()));
    expect_near(reduced("prod"), {x.type, product}, 1e-5, cat("product, seed ", GetParam()));
    expect_same(run_twice("scatter", {x, index, source}, attrs)[0], set,
                cat("scatter, seed ", GetParam()));
    expect_near(run_twice("scatter_add", {x, index, source}, attrs)[0], {x.type, add}, 1e-5,
                cat("scatter_add, seed ", GetParam()));
}

TEST(Index, AddingManyRowsToFewPlacesGivesTheSameBitsOnOneAndTwoThreads) {
    Dice dice(2);
    const Values x = dice.values({DType::f32, {50, 16}}),
                 value = dice.values({DType::f32, {20000, 16}}), index = dice.places({20000}, 50);
    const Values y = run_twice("index_add", {x, value, index}, {Ints{0}})[0];
    std::vector<double> expected = x.data;
    for (int64_t i = 0; i < 20000; ++i)
        for (int64_t c = 0; c < 16; ++c)
            expected[static_cast<size_t>((static_cast<int64_t>(index[i]) + 50) % 50 * 16 + c)] +=
                value[i * 16 + c];
    expect_near(y, {x.type, expected}, 1e-4);
}

TEST(Index, APlaceOutsideIsAnIndexErrorThatNamesIt) {
    const Values x{{DType::f32, {2, 3}}, std::vector<double>(6)}, index{{DType::i32, {2}}, {1, 3}};
    for (const char* op : {"index_get", "gather"}) {
        try {
            if (std::string(op) == "gather")
                run_any("gather", {x, Values{{DType::i32, {1, 2}}, {1, 3}}}, {int64_t{1}});
            else run_any("index_get", {x, index}, {Ints{1}});
            ADD_FAILURE() << op << " took index 3 of extent 3";
        } catch (const runtime::UserError& error) {
            EXPECT_EQ(error.kind, runtime::ErrorKind::index);
            EXPECT_NE(
                std::string(error.what()).find("index 3 is out of range for axis 1 of extent 3"),
                std::string::npos)
                << error.what();
        }
    }
}

TEST(Index, OneHotPutsAOneAtEachLabel) {
    const Values label{{DType::i32, {3}}, {2, 0, 1}};
    expect_same(run_any("one_hot", {label}, {int64_t{3}, std::string("float32")})[0],
                {0, 0, 1, 1, 0, 0, 0, 1, 0}, "one_hot");
    EXPECT_THROW(
        run_any("one_hot", {Values{{DType::i32, {1}}, {3}}}, {int64_t{3}, std::string("int32")}),
        runtime::UserError);
}

// --- ops whose result has a shape that depends on values ------------------------------------

runtime::TensorRef tensor_of(const Values& values) {
    const runtime::TensorRef t = runtime::empty_tensor(device(), values.type);
    for (int64_t i = 0; i < values.type.numel(); ++i)
        store_any(t->data(), values.type.dtype, i, values[i]);
    return t;
}
std::vector<double> data_of(const runtime::TensorRef& t) {
    std::vector<double> values;
    for (int64_t i = 0; i < t->type().numel(); ++i)
        values.push_back(load_any(t->data(), t->dtype(), i));
    return values;
}
runtime::Tensors compute(const char* op, const std::vector<Values>& inputs,
                         const Attrs& attrs = {}) {
    runtime::Tensors tensors;
    device();
    for (const Values& input : inputs) tensors.push_back(tensor_of(input));
    return runtime::compute(runtime::find_op(op), attrs, tensors);
}

TEST_P(Indexing, MaskSelectAndNonzeroFindTheTrueElements) {
    Dice dice(GetParam());
    const Shape shape =
        GetParam() == 0 ? Shape{700, 300} : dice.shape(static_cast<int>(dice.below(4)), 8);
    const Values x = dice.values({DType::f32, shape});
    Values mask{{DType::b8, shape}, std::vector<double>(x.data.size())};
    for (double& m : mask.data) m = dice.chance(0.4);
    std::vector<double> values, places, coordinates;
    for_each_place(shape, [&](const Ints& at) {
        const int64_t i = flat(shape, at);
        if (mask[i] == 0) return;
        values.push_back(x[i]);
        places.push_back(static_cast<double>(i));
        coordinates.insert(coordinates.end(), at.begin(), at.end());
    });
    const runtime::Tensors selected = compute("mask_select", {x, mask});
    EXPECT_EQ(data_of(selected[0]), values) << "seed " << GetParam();
    EXPECT_EQ(data_of(selected[1]), places) << "seed " << GetParam();
    EXPECT_EQ(data_of(compute("nonzero", {mask})[0]), coordinates) << "seed " << GetParam();
}

TEST(Nms, ABoxRemovesThoseThatOverlapItAndScoreLess) {
    const Values boxes{{DType::f32, {4, 4}},
                       {0, 0, 10, 10, 1, 1, 10, 10, 20, 20, 30, 30, 0, 0, 10, 9}},
        scores{{DType::f32, {4}}, {0.5, 0.9, 0.3, 0.7}};
    EXPECT_EQ(data_of(compute("nms", {boxes, scores}, {0.5, int64_t{0}})[0]),
              (std::vector<double>{1, 2}));
    EXPECT_EQ(data_of(compute("nms", {boxes, scores}, {0.5, int64_t{1}})[0]),
              (std::vector<double>{1}));
}

}}  // namespace megjit::testing
