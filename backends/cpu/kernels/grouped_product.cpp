// backends/cpu/kernels/grouped_product.cpp -- products of groups that data divides. A thread
// computes some columns of one group; halves are widened as they are copied.
#include "runtime/ops/grouped_matmul.h"

#include <algorithm>
#include <array>

#include "backends/cpu/elements.h"
#include "backends/cpu/kernels/contraction.h"

namespace megjit::cpu {
namespace {

using runtime::GroupedProblem;

// Element (r, c) lies at from[r * row_step + c * column_step].
template <class S>
struct Elements {
    const S* from = nullptr;
    int64_t row_step = 0, column_step = 1;
    Elements at(int64_t row, int64_t column) const {
        return {from + row * row_step + column * column_step, row_step, column_step};
    }
};

template <class S>
struct GroupedProduct {
    using T = Computed<S>;
    using Tile = ContractionTile<T>;
    using Left = std::array<T, Tile::kRows * Tile::kTerms>;

    GroupedProblem p;
    Elements<S> a, b;
    const int32_t* ends = nullptr;
    S* y = nullptr;

    void check_ends() const {
        for (int64_t group = 0, before = 0; group < p.groups; before = ends[group++])
            if (ends[group] < before || ends[group] > p.divided())
                runtime::refuse_ends(group, ends[group], p.divided());
    }

    void run() const {
        check_ends();
        if (!p.has_group_terms) {
            const int64_t last = p.groups ? ends[p.groups - 1] : 0;
            std::fill(y + last * p.n, y + p.m * p.n, S{});
        }
        const int64_t across = (p.n + Tile::kColumns - 1) / Tile::kColumns;
        const int64_t products = p.m * p.k / std::max<int64_t>(1, p.groups) * Tile::kColumns;
        parallel_for(p.groups * across, 1 + kProducts / (products + 1), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) columns_of(i / across, i % across * Tile::kColumns);
        });
    }

private:
    static constexpr int64_t kProducts = int64_t{1} << 18;  // so many are worth a second thread

    void columns_of(int64_t group, int64_t column) const {
        const int64_t begin = group ? ends[group - 1] : 0, end = ends[group];
        const int64_t first = p.has_group_terms ? 0 : begin, last = p.has_group_terms ? p.m : end;
        Tile tile;
        tile.columns = std::min(Tile::kColumns, p.n - column);
        for (int64_t row = first; row < last; row += Tile::kRows) {
            tile.rows = std::min(Tile::kRows, last - row);
            if (p.has_group_terms)
                multiply(tile, a.at(row, begin), b.at(begin, column), end - begin,
                         y + (group * p.m + row) * p.n + column);
            else
                multiply(tile, a.at(row, 0),
                         Elements<S>{b.from + group * p.k * p.n, b.row_step, b.column_step}.at(
                             0, column),
                         p.k, y + row * p.n + column);
        }
    }

    // Writes the products of the tile's rows and columns, which begin at left and right.
    void multiply(Tile& tile, const Elements<S>& left, const Elements<S>& right, int64_t terms,
                  S* to) const {
        if (terms == 0) {
            for (int64_t r = 0; r < tile.rows; ++r) std::fill_n(to + r * p.n, tile.columns, S{});
            return;
        }
        tile.begin();
        Left copy;
        for (int64_t term = 0; term < terms; term += Tile::kTerms) {
            const int64_t count = std::min(Tile::kTerms, terms - term);
            widen_block(left.at(0, term), tile.rows, count, copy.data(), Tile::kTerms);
            tile.add({copy.data(), Tile::kTerms, 1}, count, [&](int64_t, int64_t, T* block) {
                widen_block(right.at(term, 0), count, tile.columns, block, Tile::kColumns);
            });
        }
        for (int64_t r = 0; r < tile.rows; ++r)
            for (int64_t c = 0; c < tile.columns; ++c)
                to[r * p.n + c] =
                    narrow_to<S>(tile.sums[static_cast<size_t>(r * Tile::kColumns + c)]);
    }

    static void widen_block(const Elements<S>& from, int64_t rows, int64_t columns, T* to,
                            int64_t step) {
        for (int64_t r = 0; r < rows; ++r) {
            const S* row = from.from + r * from.row_step;
            if (from.column_step == 1)
                for (int64_t c = 0; c < columns; ++c) to[r * step + c] = widen(row[c]);
            else
                for (int64_t c = 0; c < columns; ++c)
                    to[r * step + c] = widen(row[c * from.column_step]);
        }
    }
};

template <class S>
Prepared prepare(const GroupedProblem& p) {
    return executable([p](void* const* in, void* const* out, void*) {
        GroupedProduct<S>{p,
                          {static_cast<const S*>(in[0]), p.ta ? 1 : p.k, p.ta ? p.m : 1},
                          {static_cast<const S*>(in[1]), p.tb ? 1 : p.n, p.tb ? p.k : 1},
                          static_cast<const int32_t*>(in[2]),
                          static_cast<S*>(out[0])}
            .run();
    });
}

Prepared prepare_grouped_matmul(const OpCall& call, std::span<const Type>) {
    const GroupedProblem p = runtime::grouped_problem(call);
    switch (call.inputs[0].dtype) {
        case DType::f64: return prepare<double>(p);
        case DType::f16: return prepare<Half>(p);
        case DType::bf16: return prepare<BFloat>(p);
        default: return prepare<float>(p);
    }
}

}  // namespace

void register_grouped_product_kernels() {
    register_kernel("grouped_matmul", prepare_grouped_matmul);
}

}  // namespace megjit::cpu
