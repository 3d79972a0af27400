// backends/mlir/walks.h -- what rows, columns and the teams of GPUs share of a walk over the
// elements of a row (codegen/row_plan.h).
#pragma once

#include "backends/mlir/reduce.h"

namespace megjit::mlir_backend {

// The values that are known before a walk: of instructions with one value a row. `reduced`: per
// reduction of the kernel, those known by now.
void evaluate_row(Frame& frame, const codegen::RowWalk& walk, const Values& bases,
                  const Piece& piece, const Values& reduced, Values& values);

// The reduced axes of a row, all but the last by loops. `body` goes over the last one, takes the
// state and gives the next; `place` is the number of the run's element 0 within the row.
struct Run {
    Values bases;
    mlir::Value place;
    mlir::Value length;
};
using RunBody = std::function<Values(const Run& run, const Values& state)>;
Values for_runs(Frame& frame, const Values& bases, const Values& state, const RunBody& body);

mlir::Value row_elements(Frame& frame);  // i64

}  // namespace megjit::mlir_backend
