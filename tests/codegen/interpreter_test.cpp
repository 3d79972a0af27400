#include <gtest/gtest.h>

#include <cmath>

#include "codegen/expand_math.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(),
                kNaN = std::numeric_limits<float>::quiet_NaN();

// One instruction on constants, as the interpreter computes it.
template <class Out, class In>
Out run(std::string_view body, DType in, DType out, std::vector<In> values) {
    std::string text = "kernel rank=1\n";
    for (size_t i = 0; i < values.size(); ++i) text += cat("in ", info(in).tag, " broadcast\n");
    const KernelIR kernel = parse_kernel(cat(text, body, "out ", info(out).tag, " %",
                                             std::count(body.begin(), body.end(), '\n') - 1, "\n"));
    EXPECT_EQ(fault_of(kernel), "");
    std::vector<void*> inputs;
    for (In& value : values) inputs.push_back(&value);
    Out result{};
    void* outputs[] = {&result};
    interpret(kernel, {.extents = {1}, .strides = std::vector<int64_t>(values.size() + 1, 0)},
              inputs.data(), outputs);
    return result;
}

int32_t i32(std::string_view op, int32_t a, int32_t b) {
    return run<int32_t, int32_t>(
        cat("%0: i32 = input 0\n%1: i32 = input 1\n%2: i32 = ", op, " %0 %1\n"), DType::i32,
        DType::i32, {a, b});
}
float f32(std::string_view op, float a, float b) {
    return run<float, float>(
        cat("%0: f32 = input 0\n%1: f32 = input 1\n%2: f32 = ", op, " %0 %1\n"), DType::f32,
        DType::f32, {a, b});
}
float f32(std::string_view op, float a) {
    return run<float, float>(cat("%0: f32 = input 0\n%1: f32 = ", op, " %0\n"), DType::f32,
                             DType::f32, {a});
}

TEST(Interpreter, IntegersDivideTowardsMinusInfinity) {
    EXPECT_EQ(i32("div", 7, -2), -4);
    EXPECT_EQ(i32("mod", 7, -2), -1);
    EXPECT_EQ(i32("mod", -7, 2), 1);
}

TEST(Interpreter, DivisionByZeroIsZero) {
    EXPECT_EQ(i32("div", 7, 0), 0);
    EXPECT_EQ(i32("mod", 7, 0), 0);
}

TEST(Interpreter, IntegersWrap) {
    EXPECT_EQ(i32("div", INT32_MIN, -1), INT32_MIN);
    EXPECT_EQ(i32("add", INT32_MAX, 1), INT32_MIN);
    EXPECT_EQ(i32("shl", 1, 33), 2);
}

TEST(Interpreter, NaNOfEitherOperandWins) {
    EXPECT_TRUE(std::isnan(f32("max", kNaN, 1)));
    EXPECT_TRUE(std::isnan(f32("max", 1, kNaN)));
    EXPECT_TRUE(std::isnan(f32("min", 1, kNaN)));
    EXPECT_TRUE(std::signbit(f32("max", -0.f, 0.f)));
}

TEST(Interpreter, CastsAsX86Does) {
    const std::string_view body = "%0: f32 = input 0\n%1: i32 = cast %0\n";
    EXPECT_EQ((run<int32_t, float>(body, DType::f32, DType::i32, {-2.9f})), -2);
    EXPECT_EQ((run<int32_t, float>(body, DType::f32, DType::i32, {kNaN})), INT32_MIN);
    EXPECT_EQ((run<int32_t, float>(body, DType::f32, DType::i32, {3e9f})), INT32_MIN);
}

TEST(Interpreter, NarrowRoundsToWhatIsStored) {
    const std::string_view body = "%0: f32 = input 0\n%1: f32 = narrow f16 %0\n";
    EXPECT_EQ((run<float, float>(body, DType::f32, DType::f32, {1.0009f})), 1.0009765625f);
    EXPECT_EQ((run<float, float>(body, DType::f32, DType::f32, {70000.f})), kInf);
}

TEST(Interpreter, KnowsFunctionsThatLibmLacks) {
    EXPECT_FLOAT_EQ(f32("erfinv", 0.5f), 0.47693628f);
    EXPECT_NEAR(std::erfc(static_cast<double>(f32("erfinv", 0x1.ffffep-1f))), 0x1p-20,
                0x1p-20 * 1e-5);
    EXPECT_EQ(f32("erfinv", 1), kInf);
    EXPECT_FLOAT_EQ(f32("digamma", 1), -0.57721566f);
    EXPECT_FLOAT_EQ(f32("digamma", -0.5f), 0.03648998f);
    EXPECT_TRUE(std::isnan(f32("digamma", -2)));
}

TEST(Interpreter, WalksByStrides) {
    const KernelIR kernel =
        parse_kernel("kernel rank=2\nin i8 strided\n%0: i32 = input 0\nout i32 %0\n");
    std::vector<int8_t> in = {1, 2, 3, 4, 5, 6};  // [2, 3], read transposed
    std::vector<int32_t> out(6);
    void* inputs[] = {in.data()};
    void* outputs[] = {out.data()};
    interpret(kernel, {.extents = {3, 2}, .strides = {1, 3, 2, 1}}, inputs, outputs);
    EXPECT_EQ(out, std::vector<int32_t>({1, 4, 2, 5, 3, 6}));
}

TEST(ExpandMath, LeavesArithmeticAlone) {
    const KernelIR kernel = random_case(3).kernel;
    EXPECT_EQ(expand_math(kernel), kernel);
}

TEST(ExpandMath, LeavesNoTranscendentalInstruction) {
    for (int op = static_cast<int>(ScalarOp::exp); op <= static_cast<int>(ScalarOp::digamma);
         ++op) {
        KernelIR kernel;
        kernel.inputs = {{}, {}};
        Expr a(&kernel.program, kernel.program.input(0, ScalarType::f32)),
            b(&kernel.program, kernel.program.input(1, ScalarType::f32));
        const auto name = static_cast<ScalarOp>(op);
        kernel.results = {(arity_of(name) == 1 ? make(name, {a}) : make(name, {a, b})).id()};
        kernel.outputs = {{DType::f32}};
        const KernelIR expanded = expand_math(kernel);
        EXPECT_EQ(fault_of(expanded), "") << name_of(name);
        for (const ScalarInst& inst : expanded.program.insts())
            EXPECT_TRUE(inst.op < ScalarOp::exp || inst.op > ScalarOp::digamma) << name_of(name);
    }
}

}}  // namespace megjit::codegen
