// backends/mlir/passes.h -- what each walk over the elements of a row computes, and the loops
// around it.
#pragma once

#include "backends/mlir/reduce.h"

namespace megjit::mlir_backend {

struct Pass {
    llvm::SmallVector<int> reductions;  // complete after it
    llvm::SmallVector<size_t> outputs;  // of elements; stored in it
    llvm::SmallVector<int>
        row;  // instructions with one value a row: known before it, computed just then
    llvm::SmallVector<int> elements;  // instructions whose values its elements need
    bool walks() const { return !reductions.empty() || !outputs.empty(); }
};

// The passes, and behind them one that walks over nothing: only values of rows are left for it.
std::vector<Pass> plan_passes(const codegen::KernelIR& kernel);
llvm::SmallVector<size_t> row_outputs(const codegen::KernelIR& kernel);

// Lets instructions that read the reductions of `pass` have their values.
void set_results(const codegen::KernelIR& kernel, const Pass& pass, const Values& results,
                 Values& values);

// The reduced axes of a row, all but the last by loops. `run` goes over the last one from `from` to
// `to`, takes the totals and gives new ones; `place` is the number of its element 0 within the row.
struct Run {
    Values bases;
    mlir::Value place;
    mlir::Value from, to;
};
using RunBody = std::function<Values(const Run& run, const Values& totals)>;
// Runs are at most `block` elements long; 0: as long as the axis.
Values for_runs(Frame& frame, const Values& bases, int64_t block, const Values& totals,
                const RunBody& run);

mlir::Value row_elements(Frame& frame);  // i64

}  // namespace megjit::mlir_backend
