// More than 2^31 elements: kernels that are launched far behind it, over memory that is reserved
// and, but for the pages they touch, never there.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "tests/backends/compiler_under_test.h"

namespace megjit::codegen { namespace {

constexpr int64_t kFar = int64_t{1} << 31;

class Reserved {
public:
    explicit Reserved(int64_t elements) : bytes_(static_cast<size_t>(elements) * sizeof(float)) {
        data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    Reserved(const Reserved&) = delete;
    ~Reserved() {
        if (data_ != MAP_FAILED) munmap(data_, bytes_);
    }
    bool exists() const { return data_ != MAP_FAILED; }
    float& operator[](int64_t i) const { return static_cast<float*>(data_)[i]; }

private:
    size_t bytes_;
    void* data_;
};

void run(std::string_view text, const std::vector<int64_t>& extents,
         const std::vector<int64_t>& strides, std::vector<void*> inputs, std::vector<void*> outputs,
         int64_t lo, int64_t hi) {
    const KernelIR kernel = parse_kernel(text);
    ASSERT_EQ(fault_of(kernel), "");
    ASSERT_LE(hi, units(kernel, {.extents = extents, .strides = strides}));
    compile(kernel)(inputs.data(), outputs.data(), extents.data(), strides.data(), lo, hi);
}

#define MEGJIT_SKIP_UNLESS(...) \
    for (const Reserved* each : std::initializer_list<const Reserved*>{__VA_ARGS__}) \
        if (!each->exists()) GTEST_SKIP() << "no address space"

TEST(WideIndices, ElementsInARow) {
    const Reserved x(kFar + 200), out(kFar + 200);
    MEGJIT_SKIP_UNLESS(&x, &out);
    float factor = 3;
    for (int64_t i = kFar; i < kFar + 200; ++i) x[i] = static_cast<float>(i - kFar);
    run("kernel rank=1\nin f32 contiguous\nin f32 broadcast\n%0: f32 = input 0\n%1: f32 = input 1\n%2: f32 = mul %0 %1\nout f32 %2\n",
        {kFar + 200}, {1, 0, 1}, {&x[0], &factor}, {&out[0]}, kFar + 3, kFar + 180);
    EXPECT_EQ(out[kFar + 2], 0);
    for (int64_t i = 3; i < 180; ++i) ASSERT_EQ(out[kFar + i], 3 * static_cast<float>(i));
    EXPECT_EQ(out[kFar + 180], 0);
}

TEST(WideIndices, ElementsOneInThree) {
    constexpr int64_t kCount = kFar / 3 + 100;
    const Reserved x(3 * kCount), out(kCount);
    MEGJIT_SKIP_UNLESS(&x, &out);
    for (int64_t i = kCount - 90; i < kCount; ++i) x[3 * i] = static_cast<float>(i - kCount);
    run("kernel rank=1\nin f32 strided\n%0: f32 = input 0\n%1: f32 = neg %0\nout f32 %1\n",
        {kCount}, {3, 1}, {&x[0]}, {&out[0]}, kCount - 90, kCount);
    for (int64_t i = 1; i <= 90; ++i) ASSERT_EQ(out[kCount - i], static_cast<float>(i));
}

//  x moves with rows and columns, one operand with rows alone, one with columns alone
TEST(WideIndices, RowsOfElements) {
    constexpr int64_t kRow = kFar + 5, kColumns = 7;
    const Reserved x(2 * kRow + 20), by_row(kRow + 2), out((kRow + 2) * kColumns);
    MEGJIT_SKIP_UNLESS(&x, &by_row, &out);
    std::vector<float> by_column(kColumns);
    for (int64_t j = 0; j < kColumns; ++j)
        by_column[static_cast<size_t>(j)] = static_cast<float>(j);
    for (int64_t r = kRow; r < kRow + 2; ++r) {
        by_row[r] = static_cast<float>(100 * (r - kRow));
        for (int64_t j = 0; j < kColumns; ++j) x[2 * r + j] = 0.5f;
    }
    run("kernel rank=2\nin f32 contiguous\nin f32 broadcast\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = input 1\n%2: f32 = input 2\n%3: f32 = add %1 %2\n%4: f32 = add %0 %3\nout f32 %4\n",
        {kRow + 2, kColumns}, {2, 1, 1, 0, 0, 1, kColumns, 1},
        {&x[0], &by_row[0], by_column.data()}, {&out[0]}, kRow, kRow + 2);
    for (int64_t r = 0; r < 2; ++r)
        for (int64_t j = 0; j < kColumns; ++j)
            ASSERT_EQ(out[(kRow + r) * kColumns + j], static_cast<float>(100 * r + j) + 0.5f);
}

TEST(WideIndices, RowsWithReductions) {
    constexpr int64_t kRow = kFar / 16 + 3,
                      kLength = 21;  // the row's number fits, its place does not
    const Reserved x((kRow + 2) * kLength), out((kRow + 2) * kLength);
    MEGJIT_SKIP_UNLESS(&x, &out);
    for (int64_t i = kRow * kLength; i < (kRow + 2) * kLength; ++i)
        x[i] = static_cast<float>(i % kLength);
    run("kernel rank=2 reduced=1 lanes=last\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = input 1\n%2: f32 = sub %0 %1\nreduce max %0\nout f32 %2\n",
        {kRow + 2, kLength}, {kLength, 1, kLength, 1}, {&x[0]}, {&out[0]}, kRow, kRow + 2);
    for (int64_t i = kRow * kLength; i < (kRow + 2) * kLength; ++i)
        ASSERT_EQ(out[i], static_cast<float>(i % kLength - kLength + 1));
}

TEST(WideIndices, ColumnsWithReductions) {
    constexpr int64_t kColumns = kFar + 2 * kColumnBlock + 30, kRows = 3,
                      kFirst = kFar / kColumnBlock + 1;
    const Reserved x(kColumns * kRows), sums(kColumns), out(kColumns * kRows);
    MEGJIT_SKIP_UNLESS(&x, &sums, &out);
    for (int64_t r = 0; r < kRows; ++r)
        for (int64_t c = kFirst * kColumnBlock; c < kColumns; ++c)
            x[r * kColumns + c] = static_cast<float>(r + 1);
    run("kernel rank=2 reduced=1 lanes=kept\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = input 1\n%2: f32 = sub %0 %1\nreduce sum %0\nout f32 row %1\nout f32 %2\n",
        {kColumns, kRows}, {1, kColumns, 1, 0, 1, kColumns}, {&x[0]}, {&sums[0], &out[0]}, kFirst,
        kFirst + 2);
    for (int64_t c = kFirst * kColumnBlock; c < kColumns; ++c) {
        ASSERT_EQ(sums[c], 6) << c - kFar;
        for (int64_t r = 0; r < kRows; ++r)
            ASSERT_EQ(out[r * kColumns + c], static_cast<float>(r - 5));
    }
}

}}  // namespace megjit::codegen
