// Kernels with reductions, against the interpreter.
#include <gtest/gtest.h>

#include <cmath>

#include "codegen/expand_math.h"
#include "tests/backends/compiler_under_test.h"
#include "tests/codegen/random_kernels.h"
#include "tests/codegen/reduction_bits.h"

namespace megjit::codegen { namespace {

// What fn stores when it does all units in parts that end at `ends`; a byte behind each output
// stays 0.
std::vector<std::vector<char>> run(KernelFn fn, Case& c, std::vector<int64_t> ends = {}) {
    std::vector<std::vector<char>> outputs;
    std::vector<void*> pointers;
    for (size_t k = 0; k < c.kernel.outputs.size(); ++k)
        outputs.emplace_back(c.output_bytes(k) + 1);
    for (auto& output : outputs) pointers.push_back(output.data());
    ends.push_back(units(c.kernel, c.launch));
    int64_t lo = 0;
    for (const int64_t hi : ends) {
        fn(c.input_pointers().data(), pointers.data(), c.launch.extents.data(),
           c.launch.strides.data(), lo, hi);
        lo = hi;
    }
    return outputs;
}

Case with_extents(Case c, std::vector<int64_t> extents, uint64_t seed = 1) {
    c.launch.extents = std::move(extents);
    c.inputs.clear();
    for (size_t i = 0; i < memory_inputs(c.kernel); ++i) {
        int64_t count = 1;
        for (size_t axis = 0; axis < c.launch.extents.size(); ++axis)
            count += (c.launch.extents[axis] - 1) * c.stride(i, axis);
        std::vector<float> values(static_cast<size_t>(count));
        Random random(seed + i);
        for (float& value : values) value = static_cast<float>(random.range(-512, 512)) / 256;
        const char* bytes = reinterpret_cast<const char*>(values.data());
        c.inputs.emplace_back(bytes, bytes + values.size() * sizeof(float));
    }
    return c;
}

// One row of `values`, reduced by `kind`.
template <class Out, class In>
Out reduce(std::string_view kind, DType dtype, std::vector<In> values) {
    Case c;
    const std::string_view type = dtype == DType::f32 ? "f32" : dtype == DType::i32 ? "i32" : "b1";
    const bool is_place = kind.starts_with("arg");
    c.kernel = parse_kernel(
        cat("kernel rank=1 reduced=1 lanes=last\nin ", info(dtype).tag, " contiguous\n%0: ", type,
            " = input 0\n%1: ", is_place ? "i32" : type, " = input 1\nreduce ", kind, " %0\nout ",
            is_place ? "i32" : info(dtype).tag, " broadcast row %1\n"));
    EXPECT_EQ(fault_of(c.kernel), "");
    c.launch = {.extents = {static_cast<int64_t>(values.size())}, .strides = {1, 0}};
    const char* bytes = reinterpret_cast<const char*>(values.data());
    c.inputs.emplace_back(bytes, bytes + values.size() * sizeof(In));
    Out result{};
    std::memcpy(&result, run(compile(c.kernel), c)[0].data(), sizeof(Out));
    return result;
}

constexpr float kInf = std::numeric_limits<float>::infinity(),
                kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(CompiledReductions, AgreeWithTheInterpreterOnRandomKernels) {
    for (uint64_t seed = 0; seed < kReductionSeeds; ++seed) {
        Case c = random_reduction_case(seed);
        c.kernel = expand_math(c.kernel);  // functions have other bits than libm's
        const KernelFn fn = compile(c.kernel);
        const auto expected = c.expected(), whole = run(fn, c);
        for (size_t k = 0; k < whole.size(); ++k)
            ASSERT_EQ(fault_of(c, k, whole[k], expected[k]), "") << "seed " << seed << "\n"
                                                                 << print(c.kernel);
        ASSERT_EQ(whole, run(fn, c, {Random(seed).range(0, units(c.kernel, c.launch))}))
            << "seed " << seed << ": depends on how units are split";
    }
}

constexpr std::string_view kFiveKinds =
    "%0: f32 = input 0\n%1: f32 = input 1\n%2: f32 = sub %0 %1\n%3: f32 = input 2\n%4: i32 = input 3\n%5: f32 = input 4\n%6: f32 = input 5\n"
    "reduce max %0\nreduce sum %2\nreduce argmin %0\nreduce variance %0\nreduce mean %0\n";

// One compiled kernel serves rows of every length: shorter than a vector, whole vectors and rests.
TEST(CompiledReductions, ServeRowsOfEveryLength) {
    Case c;
    c.kernel = parse_kernel(
        cat("kernel rank=2 reduced=1 lanes=last\nin f32 contiguous\n", kFiveKinds,
            "out f32 %2\nout f32 broadcast row %3\n"
            "out i32 broadcast row %4\nout f32 broadcast row %5\nout f32 broadcast row %6\n"));
    ASSERT_EQ(fault_of(c.kernel), "");
    const KernelFn fn = compile(c.kernel);
    for (int64_t length = 1; length <= 300; ++length) {
        c.launch.strides = {length, 1, length, 1, 1, 0, 1, 0, 1, 0, 1, 0};
        Case row = with_extents(c, {3, length}, static_cast<uint64_t>(length));
        const auto expected = row.expected(), got = run(fn, row);
        for (size_t k = 0; k < got.size(); ++k)
            ASSERT_EQ(fault_of(row, k, got[k], expected[k]), "") << "length " << length;
    }
}

// What exp gives may wait in the output for the sum, and the output may lie on the input.
// At AVX2 and AVX-512 alike: this runs at both levels.
TEST(CompiledReductions, HaveTheBitsOfTheInterpreter) {
    const RunUnits run = [](const KernelIR& kernel, Case& c, void* const* outputs, int64_t lo,
                            int64_t hi) {
        compile(kernel)(c.input_pointers().data(), outputs, c.launch.extents.data(),
                        c.launch.strides.data(), lo, hi);
    };
    EXPECT_EQ(reduction_bits(run, false), kReductionBits);
    EXPECT_EQ(reduction_bits(run, true), kReductionBits);
}

TEST(CompiledReductions, ASoftmaxOfEveryLengthMayLieOnItsInput) {
    Case c;
    c.kernel = expand_math(
        parse_kernel("kernel rank=2 reduced=1 lanes=last\nin f32 contiguous\n%0: f32 = input 0\n"
                     "%1: f32 = input 1\n%2: f32 = sub %0 %1\n%3: f32 = exp %2\n%4: f32 = input 2\n"
                     "%5: f32 = div %3 %4\nreduce max %0\nreduce sum %3\nout f32 %5\n"));
    ASSERT_EQ(fault_of(c.kernel), "");
    const KernelFn fn = compile(c.kernel);
    for (int64_t length = 1; length <= 300; ++length) {
        c.launch.strides = {length, 1, length, 1};
        Case row = with_extents(c, {3, length}, static_cast<uint64_t>(length));
        const auto expected = row.expected(), got = run(fn, row);
        ASSERT_EQ(fault_of(row, 0, got[0], expected[0]), "") << "length " << length;
        std::vector<char>& input = row.inputs[0];
        void* in_place = input.data();
        fn(row.input_pointers().data(), &in_place, row.launch.extents.data(),
           row.launch.strides.data(), 0, 3);
        input.resize(row.output_bytes(0) + 1);
        input.back() = 0;
        ASSERT_EQ(fault_of(row, 0, input, expected[0]), "") << "in place, length " << length;
    }
}

TEST(CompiledReductions, ServeEveryNumberOfColumns) {
    Case c;
    c.kernel =
        parse_kernel(cat("kernel rank=2 reduced=1 lanes=kept\nin f32 contiguous\n", kFiveKinds,
                         "out f32 %2\nout f32 row %3\n"
                         "out i32 row %4\nout f32 strided row %5\nout f32 row %6\n"));
    ASSERT_EQ(fault_of(c.kernel), "");
    const KernelFn fn = compile(c.kernel);
    for (int64_t columns = 1; columns <= 150; ++columns) {
        c.launch.strides = {1, columns, 1, columns, 1, 0, 1, 0, 3, 0, 1, 0};
        Case block = with_extents(c, {columns, 9}, static_cast<uint64_t>(columns));
        const auto expected = block.expected(), got = run(fn, block);
        for (size_t k = 0; k < got.size(); ++k)
            ASSERT_EQ(fault_of(block, k, got[k], expected[k]), "") << columns << " columns";
    }
}

// All additions of one accumulator in a chain would be off by some 1e-3 here.
TEST(CompiledReductions, LongRowsKeepTheirDigits) {
    constexpr int64_t kLength = 3'000'001;
    std::vector<float> values(kLength);
    Random random(7);
    double sum = 0;
    for (float& value : values) sum += value = 1 + static_cast<float>(random.range(0, 1000)) / 1000;
    double squares = 0;
    for (const float value : values) squares += (value - sum / kLength) * (value - sum / kLength);
    EXPECT_NEAR(reduce<float>("sum", DType::f32, values) / sum, 1, 1e-6);
    EXPECT_NEAR(reduce<float>("mean", DType::f32, values) / (sum / kLength), 1, 1e-6);
    EXPECT_NEAR(reduce<float>("variance", DType::f32, values) / (squares / kLength), 1, 1e-5);
}

TEST(CompiledReductions, AVarianceFarFromZeroKeepsItsDigits) {
    std::vector<float> values(1000);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 10000.f + static_cast<float>(i % 2);
    EXPECT_NEAR(reduce<float>("variance", DType::f32, values), 0.25, 1e-4);
}

TEST(CompiledReductions, NaNWins) {
    for (const size_t place : {0u, 5u, 16u, 63u, 64u, 99u}) {
        std::vector<float> values(100, 1);
        values[99] = kInf;
        values[place] = kNaN;
        EXPECT_TRUE(std::isnan(reduce<float>("max", DType::f32, values))) << place;
        EXPECT_TRUE(std::isnan(reduce<float>("min", DType::f32, values))) << place;
        values[99] = kNaN;
        EXPECT_EQ(reduce<int32_t>("argmax", DType::f32, values), static_cast<int32_t>(place));
        EXPECT_EQ(reduce<int32_t>("argmin", DType::f32, values), static_cast<int32_t>(place));
    }
}

TEST(CompiledReductions, OfEqualElementsTheFirstIsTheLargest) {
    EXPECT_EQ(reduce<int32_t>("argmax", DType::f32, std::vector<float>(200, -kInf)), 0);
    std::vector<int32_t> values(200, INT32_MIN);
    EXPECT_EQ(reduce<int32_t>("argmax", DType::i32, values), 0);
    values[70] = values[71] = values[150] = 3;
    EXPECT_EQ(reduce<int32_t>("argmax", DType::i32, values), 70);
    EXPECT_EQ(reduce<int32_t>("argmin", DType::i32, values), 0);
}

TEST(CompiledReductions, IntegersWrapAndTruthsAreAnyAndAll) {
    std::vector<int32_t> values(77, 2);
    EXPECT_EQ(reduce<int32_t>("sum", DType::i32, values), 154);
    EXPECT_EQ(reduce<int32_t>("prod", DType::i32, values), 0);
    values.resize(31);
    EXPECT_EQ(reduce<int32_t>("prod", DType::i32, values), INT32_MIN);
    values[30] = -5;
    EXPECT_EQ(reduce<int32_t>("max", DType::i32, values), 2);
    EXPECT_EQ(reduce<int32_t>("min", DType::i32, values), -5);
    std::vector<uint8_t> truths(77, 0);
    EXPECT_EQ(reduce<uint8_t>("max", DType::b8, truths), 0);
    truths[76] = 1;
    EXPECT_EQ(reduce<uint8_t>("max", DType::b8, truths), 1);
    EXPECT_EQ(reduce<uint8_t>("min", DType::b8, truths), 0);
    EXPECT_EQ(reduce<uint8_t>("min", DType::b8, std::vector<uint8_t>(77, 1)), 1);
}

// Only rows far behind the first 2^31 are computed; the pointers are moved back by as much.
TEST(CompiledReductions, OffsetsHaveSixtyFourBits) {
    const KernelIR kernel = parse_kernel(
        "kernel rank=2 reduced=1 lanes=last\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = input 1\nreduce sum %0\nout f32 broadcast row %1\n");
    constexpr int64_t kRow = (int64_t{1} << 31) + 3, kLength = 24;
    std::vector<float> data(2 * kLength, 1.5f), sums(2);
    void* inputs[] = {
        reinterpret_cast<void*>(reinterpret_cast<intptr_t>(data.data()) - kRow * kLength * 4)};
    void* outputs[] = {reinterpret_cast<void*>(reinterpret_cast<intptr_t>(sums.data()) - kRow * 4)};
    const int64_t extents[] = {kRow + 2, kLength}, strides[] = {kLength, 1, 1, 0};
    compile(kernel)(inputs, outputs, extents, strides, kRow, kRow + 2);
    EXPECT_EQ(sums, std::vector<float>(2, 36));
}

TEST(CompiledReductions, AnOutputMayLieOnItsInput) {
    const KernelIR kernel = parse_kernel(
        "kernel rank=2 reduced=1 lanes=last\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = input 1\n%2: f32 = sub %0 %1\n"
        "reduce mean %0\nout f32 %2\n");
    std::vector<float> data(3 * 77);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
    void* pointers[] = {data.data()};
    const int64_t extents[] = {3, 77}, strides[] = {77, 1, 77, 1};
    compile(kernel)(pointers, pointers, extents, strides, 0, 3);
    for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i], static_cast<float>(i % 77) - 38);
}

// The index is one for all lanes, or one a lane; the table's rows lie side by side, apart, or are
// one element.
TEST(CompiledElements, GatherAndCountLikeTheInterpreter) {
    for (const int rank : {1, 2})
        for (const int64_t index_stride : {0, 1, 2})
            for (const int64_t table_stride : {0, 1, 3}) {
                Case c;
                const auto inner = [](int64_t stride) {
                    return stride == 0   ? Inner::broadcast
                           : stride == 1 ? Inner::contiguous
                                         : Inner::strided;
                };
                c.kernel.rank = rank;
                c.kernel.inputs = {{DType::i32, inner(index_stride)},
                                   {DType::f16, inner(table_stride)},
                                   {DType::i32, Inner::strided}};
                c.kernel.inputs[1].by = 0;
                c.kernel.inputs[2].is_offset = true;
                ScalarProgram& program = c.kernel.program;
                const Expr value(&program, program.input(1, ScalarType::f32)),
                    at(&program, program.input(2, ScalarType::i32));
                c.kernel.results = {(value + to_type(at, ScalarType::f32)).id()};
                c.kernel.outputs = {{}};
                ASSERT_EQ(fault_of(c.kernel), "");
                c.launch.extents =
                    rank == 1 ? std::vector<int64_t>{45} : std::vector<int64_t>{3, 45};
                for (const int64_t stride : {index_stride, table_stride, int64_t{-7}, int64_t{1}}) {
                    if (rank == 2) c.launch.strides.push_back(stride == 1 ? 45 : 1);
                    c.launch.strides.push_back(stride);
                }
                c.launch.strides.push_back(200);
                std::vector<int32_t> indices(200);
                for (size_t i = 0; i < indices.size(); ++i)
                    indices[i] = static_cast<int32_t>(i * 7 % 5);
                std::vector<uint16_t> table(1200);
                for (size_t i = 0; i < table.size(); ++i)
                    table[i] = float_to_half(static_cast<float>(i));
                const auto keep = [&](const auto& data) {
                    c.inputs.emplace_back(reinterpret_cast<const char*>(data.data()),
                                          reinterpret_cast<const char*>(data.data() + data.size()));
                };
                keep(indices);
                keep(table);
                ASSERT_EQ(run(compile(c.kernel), c), c.expected()) << print(c.kernel);
            }
}

}}  // namespace megjit::codegen
