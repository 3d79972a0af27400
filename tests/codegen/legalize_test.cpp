#include "codegen/legalize.h"

#include <gtest/gtest.h>

#include "codegen/expand_math.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

// What the legal form of c's kernel stores in place of the bits that c expects; "" for the same.
std::string difference(Case c, NativeOps native = {}) {
    const auto want = c.expected();
    const std::vector<Operand> outputs = c.kernel.outputs;
    c.kernel = legalize(c.kernel, native);
    if (const std::string fault = fault_of(c.kernel); !fault.empty()) return fault;
    if (const std::string what = illegal_in(c.kernel, native); !what.empty()) return what;
    const auto got = c.expected();
    for (size_t k = 0; k < outputs.size(); ++k)
        for (size_t at = 0; at + size_of(outputs[k].dtype) <= want[k].size();
             at += size_of(outputs[k].dtype))
            if (!same_value(outputs[k].dtype, got[k].data() + at, want[k].data() + at))
                return cat("output ", k, ", byte ", at);
    return "";
}

TEST(Legalize, KeepsEveryBitOfRandomKernels) {
    for (uint64_t seed = 0; seed < 600; ++seed) {
        const Case c = random_case(seed);
        for (const NativeOps native : {NativeOps{}, kAllNative})
            ASSERT_EQ(difference(c, native), "") << "seed " << seed << "\n" << print(c.kernel);
    }
}

TEST(Legalize, KeepsEveryBitOfRandomReductions) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        Case c = random_reduction_case(seed, 20);
        c.kernel = expand_math(c.kernel);  // functions have other bits than libm's
        ASSERT_EQ(difference(c), "") << "seed " << seed << "\n" << print(c.kernel);
    }
}

TEST(Legalize, LeavesLegalKernelsAlone) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const KernelIR once = legalize(random_case(seed).kernel);
        ASSERT_EQ(legalize(once), once) << "seed " << seed;
    }
}

// Every bfloat16 and those next to its halves, half-way cases, NaN and infinity among them.
TEST(Legalize, RoundsToBfloat16AsTheStoreDoes) {
    Case c;
    c.kernel = parse_kernel(
        "kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = narrow bf16 %0\nout bf16 %1\n");
    std::vector<uint32_t> bits;
    for (uint32_t high = 0; high < 65536; ++high)
        for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
            bits.push_back(high << 16 | low);
    c.launch = {.extents = {static_cast<int64_t>(bits.size())}, .strides = {1, 1}};
    const char* bytes = reinterpret_cast<const char*>(bits.data());
    c.inputs.emplace_back(bytes, bytes + 4 * bits.size());
    EXPECT_EQ(difference(c), "");
}

TEST(Legalize, KeepsWhatTruthsAreReducedTo) {
    for (const char* kind : {"max", "min"})
        for (const int64_t length : {0, 1, 5})
            for (const uint8_t first : {0, 1}) {
                Case c;
                const std::string_view b8 = info(DType::b8).tag;
                c.kernel = parse_kernel(cat("kernel rank=1 reduced=1 lanes=last\nin ", b8,
                                            " contiguous\n%0: b1 = input 0\n",
                                            "%1: b1 = input 1\n%2: b1 = bit_not %1\nreduce ", kind,
                                            " %0\nout ", b8, " broadcast row %2\n"));
                c.launch = {.extents = {length}, .strides = {1, 0}};
                c.inputs.emplace_back(8, static_cast<char>(!first));
                c.inputs[0][0] = static_cast<char>(first);
                EXPECT_EQ(difference(c), "") << kind << " of " << length;
            }
}

// A guard of somebody else is none of ours.
TEST(Legalize, TrustsOnlyItsOwnGuards) {
    for (
        const char* body :
        {"%2: b1 = lt %0 %1\n%3: i32 = constant 1\n%4: i32 = select %2 %3 %1\n%5: i32 = div %0 %4\n",
         "%2: i32 = constant 255\n%3: i32 = bit_and %1 %2\n%4: i32 = shl %0 %3\n%5: i32 = neg %4\n",
         "%2: i32 = constant -1\n%3: i32 = div %0 %2\n%4: i32 = mod %1 %3\n%5: i32 = abs %4\n"}) {
        Case c;
        c.kernel = parse_kernel(cat(
            "kernel rank=1\nin i32 contiguous\nin i32 contiguous\n%0: i32 = input 0\n%1: i32 = input 1\n",
            body, "out i32 %5\n"));
        const std::vector<int32_t> numbers = {0, 1, -1, 2, -7, 40, INT32_MIN, INT32_MAX};
        std::vector<int32_t> a, b;
        for (const int32_t x : numbers)
            for (const int32_t y : numbers) a.push_back(x), b.push_back(y);
        c.launch = {.extents = {static_cast<int64_t>(a.size())}, .strides = {1, 1, 1}};
        for (const auto& input : {a, b})
            c.inputs.emplace_back(reinterpret_cast<const char*>(input.data()),
                                  reinterpret_cast<const char*>(input.data() + input.size()));
        EXPECT_EQ(difference(c), "") << body;
    }
}

TEST(Legalize, NamesWhatIsNotLegal) {
    EXPECT_EQ(illegal_in(parse_kernel(
                  "kernel rank=1\nin bf16 contiguous\n%0: f32 = input 0\nout f32 %0\n")),
              "an operand is bf16");
    EXPECT_EQ(
        illegal_in(parse_kernel(
            "kernel rank=1\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = max %0 %0\nout f32 %1\n")),
        "%1 (max)");
}

}}  // namespace megjit::codegen
