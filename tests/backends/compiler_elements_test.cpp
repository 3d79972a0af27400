#include <gtest/gtest.h>
#ifdef __SSE__
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#endif

#include <fstream>

#include "codegen/expand_math.h"
#include "runtime/host/error.h"
#include "tests/backends/compiler_under_test.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

// Outputs between guards: `kGuard` bytes before and after must stay as they were.
struct Guarded {
    static constexpr size_t kGuard = 128;
    static constexpr char kFill = 0x5A;
    std::vector<std::vector<char>> blocks;
    std::vector<void*> pointers;

    explicit Guarded(const Case& c) {
        for (const Operand& output : c.kernel.outputs)
            blocks.emplace_back(
                2 * kGuard + static_cast<size_t>(c.launch.numel()) * size_of(output.dtype), kFill);
        for (auto& block : blocks) pointers.push_back(block.data() + kGuard);
    }
    // Elements lo..hi have the expected values, and no byte outside has changed; "" or what is
    // wrong.
    std::string fault(const Case& c, const std::vector<std::vector<char>>& expected, int64_t lo,
                      int64_t hi) const {
        for (size_t k = 0; k < blocks.size(); ++k) {
            const DType dtype = c.kernel.outputs[k].dtype;
            const size_t size = size_of(dtype), first = kGuard + static_cast<size_t>(lo) * size,
                         last = kGuard + static_cast<size_t>(hi) * size;
            for (size_t i = 0; i < blocks[k].size(); ++i)
                if ((i < first || i >= last) && blocks[k][i] != kFill)
                    return cat("output ", k, ": wrote ", static_cast<int64_t>(i - kGuard),
                               " bytes from its start");
            for (int64_t i = lo; i < hi; ++i) {
                const char* got = blocks[k].data() + kGuard + static_cast<size_t>(i) * size;
                const char* want = expected[k].data() + static_cast<size_t>(i) * size;
                if (same_value(dtype, got, want)) continue;
                uint32_t g = 0, w = 0;
                std::memcpy(&g, got, size);
                std::memcpy(&w, want, size);
                return cat("output ", k, "[", i, "]: bits ", in_hex(g), " instead of ", in_hex(w));
            }
        }
        return "";
    }
};

std::string fault_of_part(KernelFn fn, Case& c, const std::vector<std::vector<char>>& expected,
                          int64_t lo, int64_t hi) {
    Guarded out(c);
    fn(c.input_pointers().data(), out.pointers.data(), c.launch.extents.data(),
       c.launch.strides.data(), lo, hi);
    const int64_t row = c.kernel.rank == 1 ? 1 : c.launch.extents.back();
    return out.fault(c, expected, lo * row, hi * row);
}

TEST(CompiledElements, AgreesWithTheInterpreterOnRandomKernels) {
    for (uint64_t seed = 1000; seed < 1000 + kElementSeeds; ++seed) {
        Case c = random_case(seed);
        const KernelFn fn = compile(c.kernel);
        const auto expected = c.expected();
        const int64_t all = c.kernel.rank == 1 ? c.launch.numel() : c.launch.rows();
        Random random(seed);
        const int64_t lo = random.range(0, all), hi = random.range(lo, all);
        ASSERT_EQ(fault_of_part(fn, c, expected, 0, all), "") << "seed " << seed << "\n"
                                                              << print(c.kernel);
        ASSERT_EQ(fault_of_part(fn, c, expected, lo, hi), "")
            << "seed " << seed << ", part " << lo << ".." << hi << "\n"
            << print(c.kernel);
    }
}

// One compiled kernel serves every length: short and long programs, whole vectors and rests.
TEST(CompiledElements, ServesEveryLength) {
    for (const uint64_t seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
        Case c = random_case(seed);
        const KernelFn fn = compile(c.kernel);
        for (int64_t length = 0; length < 70; ++length) {
            Case of_length = c;
            of_length.launch.extents.back() = length;
            for (size_t i = 0; i < c.inputs.size(); ++i) {
                int64_t count = 1;
                for (int axis = 0; axis < c.kernel.rank; ++axis)
                    count += std::max<int64_t>(of_length.launch.extents[axis] - 1, 0) *
                             c.launch.strides[i * c.kernel.rank + axis];
                of_length.inputs[i].resize(static_cast<size_t>(count) *
                                           size_of(c.kernel.inputs[i].dtype));
                Random(length).fill(c.kernel.inputs[i].dtype, of_length.inputs[i].data(), count);
            }
            const int64_t all = c.kernel.rank == 1 ? length : of_length.launch.rows();
            ASSERT_EQ(fault_of_part(fn, of_length, of_length.expected(), 0, all), "")
                << "seed " << seed << ", length " << length;
        }
    }
}

// Every value of a 16-bit type, and the floats between them, rounds as half.h says.
TEST(CompiledElements, RoundsEveryHalfToEven) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
        Case c;
        c.kernel.inputs = {{}};
        c.kernel.results = {
            runtime::narrow(Expr(&c.kernel.program, c.kernel.program.input(0, ScalarType::f32)),
                            dtype)
                .id()};
        c.kernel.outputs = {{dtype}};
        std::vector<float> values;
        for (uint32_t h = 0; h < 0x10000; ++h)
            for (const int nudge : {-1, 0, 1}) {
                const float exact = dtype == DType::f16 ? half_to_float(static_cast<uint16_t>(h))
                                                        : bfloat_to_float(static_cast<uint16_t>(h));
                const uint32_t between =
                    std::bit_cast<uint32_t>(exact) + (dtype == DType::f16 ? 0x1000u : 0x8000u);
                values.push_back(std::bit_cast<float>(between + static_cast<uint32_t>(nudge)));
                values.push_back(exact);
            }
        c.launch = {.extents = {static_cast<int64_t>(values.size())}, .strides = {1, 1}};
        const char* bytes = reinterpret_cast<const char*>(values.data());
        c.inputs.emplace_back(bytes, bytes + values.size() * sizeof(float));
        EXPECT_EQ(fault_of_part(compile(c.kernel), c, c.expected(), 0, c.launch.numel()), "")
            << info(dtype).name;
    }
}

int64_t ulps_between(float a, float b) {
    const auto ordered = [](float x) {
        const auto bits = std::bit_cast<int32_t>(x);
        return static_cast<int64_t>(bits < 0 ? INT32_MIN - static_cast<int64_t>(bits) : bits);
    };
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : INT64_MAX;
    return std::abs(ordered(a) - ordered(b));
}

// lgamma and digamma have zeros where an error in ulp says nothing: arguments stay above them.
TEST(CompiledElements, TranscendentalFunctionsAreWithinTwoUlp) {
    for (int number = static_cast<int>(ScalarOp::exp);
         number <= static_cast<int>(ScalarOp::digamma); ++number) {
        const auto op = static_cast<ScalarOp>(number);
        const bool of_halves =
            op == ScalarOp::erfc_of_halves || op == ScalarOp::gelu_slope_of_halves;
        Case c;
        c.kernel.inputs = {{}, {}};
        const Expr a(&c.kernel.program, c.kernel.program.input(0, ScalarType::f32)),
            b(&c.kernel.program, c.kernel.program.input(1, ScalarType::f32));
        c.kernel.results = {(arity_of(op) == 1 ? make(op, {a}) : make(op, {a, b})).id()};
        c.kernel.outputs = {{DType::f32}};
        constexpr int64_t kCount = 4099;
        c.launch = {.extents = {kCount}, .strides = {1, 1, 1}};
        Random random(static_cast<uint64_t>(number));
        for (int i = 0; i < 2; ++i) {
            std::vector<float> values(kCount);
            for (float& value : values) {
                value = random.f32();
                if (op == ScalarOp::lgamma || op == ScalarOp::digamma) value = 3 + std::fabs(value);
                if (!of_halves) continue;
                value = std::fmod(value, op == ScalarOp::erfc_of_halves ? 9.0f : 6.0f);
                if (value < 0 && value > -2) value -= 2;  // a slope is 0 there
            }
            const char* bytes = reinterpret_cast<const char*>(values.data());
            c.inputs.emplace_back(bytes, bytes + kCount * sizeof(float));
        }
        const KernelFn fn = compile(c.kernel);
        Guarded out(c);
        fn(c.input_pointers().data(), out.pointers.data(), c.launch.extents.data(),
           c.launch.strides.data(), 0, kCount);
        const auto expected = c.expected();
        int64_t worst = 0;
        for (int64_t i = 0; i < kCount; ++i)
            worst = std::max(worst,
                             ulps_between(static_cast<float*>(out.pointers[0])[i],
                                          reinterpret_cast<const float*>(expected[0].data())[i]));
        EXPECT_LE(worst, of_halves ? 1024 : 2) << name_of(op);
        // The expansion, interpreted, gives the very same bits: code generation adds nothing of its
        // own.
        Case expanded = c;
        expanded.kernel = expand_math(c.kernel);
        EXPECT_EQ(out.fault(c, expanded.expected(), 0, kCount), "") << name_of(op);
    }
}

#ifdef __SSE__
// A kernel neither flushes denormals nor leaves a mode behind that does.
// Larger or smaller of what is itself larger or smaller, with the same bound: no compiler may fold
// them.
TEST(CompiledElements, NestedExtremaKeepNanAndTheSignOfZero) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> x = {nan, -0.0f, 0.0f, -1, 1, -nan, -1e-40f, 1e-40f};
    const std::string second[] = {"%3: b1 = lt %1 %2\n%4: f32 = select %3 %2 %1\n",
                                  "%3: b1 = lt %2 %1\n%4: f32 = select %3 %1 %2\n",
                                  "%3: b1 = le %1 %2\n%4: f32 = select %3 %2 %1\n",
                                  "%3: b1 = lt %1 %2\n%4: f32 = max %2 %1\n",
                                  "%3: b1 = lt %1 %2\n%4: f32 = min %1 %2\n"};
    for (const char* first : {"max %0 %1", "max %1 %0", "min %0 %1", "min %1 %0"})
        for (const std::string& then : second) {
            Case c{
                .kernel = parse_kernel(runtime::cat(
                    "kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = constant 0\n%2: f32 = ",
                    first, "\n", then, "out f32 %4\n")),
                .launch = {.extents = {static_cast<int64_t>(x.size())}, .strides = {1, 1}},
                .inputs = {}};
            c.inputs.emplace_back(reinterpret_cast<const char*>(x.data()),
                                  reinterpret_cast<const char*>(x.data() + x.size()));
            EXPECT_EQ(fault_of_part(compile(c.kernel), c, c.expected(), 0, c.launch.numel()), "")
                << print(c.kernel);
        }
}

// How this thread's FPU rounds, and what it does with denormal numbers.
uint64_t fpu_modes() {
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3Fu;  // all but the flags of exceptions
#else
    return __builtin_aarch64_get_fpcr64();
#endif
}

TEST(CompiledElements, LeavesTheModesOfTheFpuAsTheyWere) {
    for (const uint64_t seed : {1u, 2u, 3u}) {
        Case c = random_case(seed);
        const KernelFn fn = compile(c.kernel);
        Guarded out(c);
        const uint64_t before = fpu_modes();
        fn(c.input_pointers().data(), out.pointers.data(), c.launch.extents.data(),
           c.launch.strides.data(), 0, units(c.kernel, c.launch));
        EXPECT_EQ(fpu_modes(), before);
    }
    const KernelFn half = compile(parse_kernel(
        "kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = constant 0.5\n%2: f32 = mul %0 %1\nout f32 %2\n"));
    std::vector<float> data(45, 3e-45f);
    void* pointers[] = {data.data()};
    const int64_t extents[] = {45}, strides[] = {1, 1};
    half(pointers, pointers, extents, strides, 0, 45);
    EXPECT_EQ(data, std::vector<float>(45, 1.4e-45f));
}
#endif

TEST(CompiledElements, AnOutputMayLieOnItsInput) {
    KernelIR kernel = parse_kernel(
        "kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = mul %0 %0\nout f32 %1\n");
    std::vector<float> data(45);
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
    void* inputs[] = {data.data()};
    const int64_t extents[] = {45}, strides[] = {1};
    compile(kernel)(inputs, inputs, extents, strides, 0, 45);
    for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i], static_cast<float>(i * i));
}

TEST(CompiledElements, SourceIsReadable) {
    const KernelIR kernel = parse_kernel(
        "kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = mul %0 %0\nout f32 %1\n");
    const std::string source = compiler().source(kernel);
    EXPECT_NE(source.find("megjit_kernel"), std::string::npos);
    EXPECT_NE(source.find("mul"), std::string::npos);
}

TEST(CompiledElements, VersionNamesTheCompiler) {
    EXPECT_NE(compiler().version_key().find(kVersion), std::string::npos);
}

TEST(CompiledElements, RefusesWhatIsNotAnObject) {
    EXPECT_THROW(compiler().load("not an object"), runtime::Error);
}

TEST(CompiledElements, AMissingPluginIsNotAvailable) {
    CompilerUnderTest missing("/nowhere/libmegjit.so");
    EXPECT_FALSE(missing.available());
    EXPECT_THROW(missing.version_key(), runtime::DeviceError);
}

TEST(CompiledElements, AnEmptyPartTouchesNothing) {
    const KernelIR kernel =
        parse_kernel("kernel rank=1\nin f32 broadcast\n%0: f32 = input 0\nout f32 %0\n");
    void* nothing[] = {nullptr};
    const int64_t extents[] = {0}, strides[] = {0};
    compile(kernel)(nothing, nothing, extents, strides, 0, 0);
}

}}  // namespace megjit::codegen
