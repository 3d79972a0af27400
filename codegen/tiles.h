// codegen/tiles.h -- contractions: kernels whose rows are dots, where one factor is the same for
// neighboring rows and the other one for neighboring columns (a product of matrices, whatever is
// computed of their elements before and of the result afterwards). All rows and columns of a tile
// share what the tile reads. (With lanes along the sum, neighboring rows alone share their reads.)
// The bits are those of any other walk: each dot takes its products in the order of
// codegen/row_plan.h.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

bool is_contraction(std::span<const Reduction> reductions);  // nothing but dots

// Are the rows nothing but dots, with lanes along the sum? Then several neighbors share what they
// read (where that repeats), and no row waits for its last sum. No input is gathered: the next row
// is a stride away.
bool has_dot_rows(const KernelIR& kernel);
// Returns those of the elements' instructions that have one value for all rows of a unit.
std::vector<int> same_for_rows(const KernelIR& kernel, std::span<const int> elements);

// Instructions of elements, in their order. (Both lists have what is the same for rows and
// columns.)
struct TilePlan {
    std::vector<int> of_columns;  // one value for all rows of a tile
    std::vector<int> of_rows;  // one value for all its columns
    // Instructions with one value per row of the kernel that these may read.
    std::vector<int> known_of_columns, known_of_rows;
    bool is_of_columns(int id) const;
};

// Plans tiles of a kernel whose lanes go over columns; nothing if its rows cannot share what they
// read. (Panels hold the factors of one dot.)
std::optional<TilePlan> tile_plan_of(const KernelIR& kernel);

// Is there one sum, and does it add products of two such factors? Then threads of a GPU share tiles
// of it.
bool is_one_product(const KernelIR& kernel);
// Returns the type of halves that such a kernel multiplies, legal or not: f16 or bf16 if both
// factors are numbers of that type, whatever they are computed from. Tensor cores multiply these.
std::optional<DType> halves_of(const KernelIR& kernel);

}  // namespace megjit::codegen
