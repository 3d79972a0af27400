#include "backends/cpu/kernels/integer_product.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/instructions.h"
#include "backends/cpu/kernels/recurrent_cells.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

using runtime::DType;
using runtime::MatmulProblem;
using runtime::parallel_for;

template <class T>
using Term = std::conditional_t<sizeof(T) == 4, int32_t, int16_t>;
template <class T>
constexpr int64_t kTermsOf = sizeof(T) == 4 ? 1 : 2;  // in one word of 32 bits

struct IntegerProduct {
    static constexpr int64_t kTileRows = 48, kTileColumns = 128,
                             kTileWords = 128;  // rows and sums take 24 KB of the stack each

    int64_t m = 0, n = 0, k = 0, words = 0;
    int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0;  // strides
};

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/integer_product.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t product(const std::vector<int64_t>& extents) {
    int64_t count = 1;
    for (const int64_t extent : extents) count *= extent;
    return count;
}

// Returns which matrix of an operand with the batch `own` belongs to number `index` of the result.
int64_t matrix_of(const MatmulProblem& p, const std::vector<int64_t>& own, int64_t index) {
    int64_t matrix = 0, step = 1;
    for (size_t axis = p.batch.size(); axis-- > 0; index /= p.batch[axis]) {
        if (own[axis] > 1) matrix += index % p.batch[axis] * step;
        step *= own[axis];
    }
    return matrix;
}

template <class T>
class IntegerProductExecutable final : public runtime::Executable {
public:
    // `narrows`: results are of the operands' type, not int32.
    IntegerProductExecutable(MatmulProblem problem, bool narrows)
        : narrows_(narrows),
          p_(std::move(problem)),
          s_{.m = p_.m,
             .n = p_.n,
             .k = p_.k,
             .words = ceil_div(p_.k, kTermsOf<T>),
             .a_row = p_.ta ? 1 : p_.k,
             .a_column = p_.ta ? p_.m : 1,
             .b_row = p_.tb ? 1 : p_.n,
             .b_column = p_.tb ? p_.k : 1},
          panel_(MEGJIT_BEST(kPanel)),
          panels_(ceil_div(s_.n, panel_)) {}

    size_t workspace_bytes() const override {
        return packs() ? static_cast<size_t>(product(p_.b_batch) * packed_words()) * sizeof(int32_t)
                       : 0;
    }

    void enqueue(runtime::Stream&, void* const* in, void* const* out,
                 void* workspace) const override {
        const T *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
        if (!packs()) return multiply_rows(a, b, out[0]);
        int32_t* const packed = static_cast<int32_t*>(workspace);
        pack(b, packed);
        multiply(a, packed, out[0]);
    }

private:
    static constexpr int64_t kGrain = 1 << 18,  // this many products are worth a second thread
        kFewRows = 12;

    bool packs() const { return s_.m >= kFewRows; }
    int64_t packed_words() const { return panels_ * s_.words * panel_; }

    // Writes sums to the places of y from `at` on.
    void store(const int32_t* sums, int64_t count, void* y, int64_t at) const {
        if (!narrows_) std::copy_n(sums, count, static_cast<int32_t*>(y) + at);
        else
            for (int64_t c = 0; c < count; ++c)
                static_cast<T*>(y)[at + c] = static_cast<T>(sums[c]);
    }

    void multiply_rows(const T* a, const T* b, void* y) const {
        const int64_t parts = ceil_div(s_.n, IntegerProduct::kTileColumns),
                      rows = product(p_.batch) * s_.m;
        parallel_for(rows * parts, 1 + kGrain / (IntegerProduct::kTileColumns * s_.k), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t task = lo; task < hi; ++task) {
                const int64_t part = task % parts, row = task / parts, index = row / s_.m,
                              first = part * IntegerProduct::kTileColumns,
                              last = std::min(s_.n, first + IntegerProduct::kTileColumns);
                int32_t sums[IntegerProduct::kTileColumns];
                MEGJIT_BEST(multiply_row<T>)(
                    s_, a + matrix_of(p_, p_.a_batch, index) * s_.m * s_.k + row % s_.m * s_.a_row,
                    b + matrix_of(p_, p_.b_batch, index) * s_.k * s_.n, first, last, sums);
                store(sums, last - first, y, row * s_.n + first);
            }
        });
    }

    void pack(const T* b, int32_t* to) const {
        parallel_for(product(p_.b_batch) * panels_, 1 + kGrain / (panel_ * s_.k), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t task = lo; task < hi; ++task)
                MEGJIT_BEST(pack_panel<T>)(s_, b + task / panels_ * s_.k * s_.n,
                                           task % panels_ * panel_, to + task * s_.words * panel_);
        });
    }

    void multiply(const T* a, const int32_t* packed, void* y) const {
        constexpr int64_t kRows = IntegerProduct::kTileRows;
        const int64_t tiles = ceil_div(s_.m, kRows),
                      together = IntegerProduct::kTileColumns / panel_,
                      parts = ceil_div(panels_, together);
        parallel_for(product(p_.batch) * tiles * parts,
                     1 + kGrain / (kRows * s_.k * IntegerProduct::kTileColumns), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t task = lo; task < hi; ++task) {
                const int64_t part = task % parts, tile = task / parts % tiles,
                              index = task / parts / tiles, lo = tile * kRows,
                              rows = std::min(kRows, s_.m - lo), first = part * together,
                              last = std::min(panels_, first + together);
                alignas(64) int32_t sums[kRows * IntegerProduct::kTileColumns];
                MEGJIT_BEST(multiply_tile<T>)(
                    s_, a + matrix_of(p_, p_.a_batch, index) * s_.m * s_.k,
                    packed + matrix_of(p_, p_.b_batch, index) * packed_words(), lo, rows, first,
                    last, sums);
                const int64_t columns = (last - first) * panel_,
                              count = std::min(s_.n - first * panel_, columns);
                for (int64_t r = 0; r < rows; ++r)
                    store(sums + r * columns, count, y,
                          (index * s_.m + lo + r) * s_.n + first * panel_);
            }
        });
    }

    bool narrows_;
    MatmulProblem p_;
    IntegerProduct s_;
    int64_t panel_, panels_;
};

// Products of 64 bits: the CPU's instructions multiply 32 at most, so nothing is packed for them.
Prepared prepare_wide_product(const MatmulProblem& p) {
    constexpr int64_t kGrain = 1 << 16;
    const int64_t rows = product(p.batch) * p.m;
    return executable([=](void* const* in, void* const* out, void*) {
        const auto *a = static_cast<const uint64_t*>(in[0]),
                   *b = static_cast<const uint64_t*>(in[1]);
        parallel_for(rows, 1 + kGrain / (p.n * p.k), 1, [&](int64_t lo, int64_t hi) {
            for (int64_t row = lo; row < hi; ++row) {
                const int64_t index = row / p.m, r = row % p.m;
                const uint64_t* from = a + matrix_of(p, p.a_batch, index) * p.m * p.k;
                const uint64_t* right = b + matrix_of(p, p.b_batch, index) * p.k * p.n;
                uint64_t* y = static_cast<uint64_t*>(out[0]) + row * p.n;
                std::fill_n(y, p.n, uint64_t{0});
                for (int64_t t = 0; t < p.k; ++t) {
                    const uint64_t factor = from[p.ta ? t * p.m + r : r * p.k + t];
                    for (int64_t c = 0; c < p.n; ++c)
                        y[c] += factor * right[p.tb ? c * p.k + t : t * p.n + c];
                }
            }
        });
    });
}

// Products of few rows with a matrix that lies transposed.
Prepared prepare_few_rows(const MatmulProblem& p) {
    return executable(
        [m = p.m, n = p.n, k = p.k](void* const* in, void* const* out, void* workspace) {
        auto* const terms = static_cast<uint8_t*>(workspace);
        const int origin = lay_out_byte_rows(static_cast<const int8_t*>(in[0]), m, k, terms);
        multiply_byte_rows({.rows = m,
                            .inner = k,
                            .columns = n,
                            .x = terms,
                            .origin = origin,
                            .w = static_cast<const int8_t*>(in[1]),
                            .sums = static_cast<int32_t*>(out[0])});
    }, static_cast<size_t>(p.m * stride_of_byte_rows(p.k)));
}

}  // namespace

bool is_product_of_few_bytes(const MatmulProblem& p, DType from, DType to) {
    constexpr int64_t kMostRows = 32;
    return from == DType::i8 && to == DType::i32 && p.batch.empty() && p.tb && !p.ta &&
           p.m <= kMostRows;
}

Prepared prepare_integer_product(const MatmulProblem& problem, DType from, DType to) {
    const auto make = [&]<class T>(T) -> Prepared {
        return std::make_shared<const IntegerProductExecutable<T>>(problem, from == to);
    };
    if (is_product_of_few_bytes(problem, from, to)) return prepare_few_rows(problem);
    switch (from) {
        case DType::i8: return make(int8_t{});
        case DType::u8: return make(uint8_t{});
        case DType::i16: return make(int16_t{});
        case DType::u16: return make(uint16_t{});
        case DType::i32: return make(int32_t{});
        case DType::i64: return prepare_wide_product(problem);
        default:
            throw runtime::InternalError(
                runtime::cat("integer product of ", runtime::info(from).name));
    }
}

}  // namespace megjit::cpu
