// backends/cpu/kernels/contraction.h -- products of float32 and float64 matrices by loops of ours,
// for what oneDNN does not compute, and for a build without it. Each element of a result is one sum
// of fused products in the order of its terms: the same bits for any number of threads, at every
// level and on every architecture.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "runtime/host/parallel.h"

namespace megjit::cpu {

// The left factor: element (row, term) lies at from[row * row_step + term * term_step].
template <class T>
struct LeftRows {
    const T* from = nullptr;
    int64_t row_step = 0, term_step = 1;
};

// A part of a result, of at most kRows x kColumns elements.
template <class T>
struct ContractionTile {
    static constexpr int64_t kRows = 96, kColumns = 256 / sizeof(T), kTerms = 128;

    int64_t row = 0, rows = 0, column = 0, columns = 0;
    // Sums are made here, right factors are copied there: both fit the first cache.
    alignas(64) std::array<T, kRows * kColumns> sums;
    alignas(64) std::array<T, kTerms * kColumns> block;

    // Adds the products of `terms` terms. fill(term, count, to) writes the right factor's terms
    // [term, term + count) of the tile's columns: element (t, c) to to[t * kColumns + c]; it need
    // not write columns beyond `columns`.
    template <class Fill>
    void add(const LeftRows<T>& left, int64_t terms, const Fill& fill) {
        for (int64_t term = 0; term < terms; term += kTerms) {
            const int64_t count = std::min(kTerms, terms - term);
            fill(term, count, block.data());
            multiply_block(left.from + row * left.row_step + term * left.term_step, left, count);
        }
    }
    void begin() { has_sums_ = false; }  // begins new sums
    // Writes the sums: element (r, c) to to[r * step + c] of the whole result.
    void store(T* to, int64_t step) const;

private:
    void multiply_block(const T* from, const LeftRows<T>& left, int64_t count);
    bool has_sums_ = false;
};

// Calls compute(batch, tile) for all tiles of `batches` results of rows x columns, in all threads.
template <class T, class Compute>
void each_tile(int64_t batches, int64_t rows, int64_t columns, int64_t terms,
               const Compute& compute) {
    constexpr int64_t kProducts = int64_t{1} << 18;  // so many are worth a second thread
    using Tile = ContractionTile<T>;
    const int64_t down = (rows + Tile::kRows - 1) / Tile::kRows,
                  across = (columns + Tile::kColumns - 1) / Tile::kColumns;
    const int64_t products = std::max<int64_t>(
        1, std::min(rows, Tile::kRows) * std::min(columns, Tile::kColumns) * terms);
    runtime::parallel_for(batches * down * across, std::max<int64_t>(1, kProducts / products), 1,
                          [&](int64_t lo, int64_t hi) {
        for (int64_t i = lo; i < hi; ++i) {
            Tile tile;
            tile.row = i / across % down * Tile::kRows;
            tile.rows = std::min(Tile::kRows, rows - tile.row);
            tile.column = i % across * Tile::kColumns;
            tile.columns = std::min(Tile::kColumns, columns - tile.column);
            compute(i / across / down, tile);
        }
    });
}

}  // namespace megjit::cpu
