// runtime/ops/matmul.h -- a matrix product as kernels see it: the op's attributes and the shapes of
// its operands are read here, once.
#pragma once

#include <vector>

#include "runtime/ops/epilogue.h"

namespace megjit::runtime {

// One product [m, k] x [k, n] per batch element. Neighbouring batch axes that are broadcast alike
// are merged; the batch of `a` becomes rows where `b` has none.
struct MatmulProblem {
    int64_t m = 0, n = 0, k = 0;
    std::vector<int64_t> batch = {}, a_batch = {}, b_batch = {};  // extents of y, a and b: 1 where
                                                                  // broadcast
    bool ta = false, tb = false;  // the operand is transposed
    std::vector<EpilogueStep> steps = {};
};

// Describes a call of matmul or matmul_epilogue, whose results have the types `outputs`.
MatmulProblem matmul_problem(const OpCall& call, std::span<const Type> outputs);

// The op that a pass makes of a matmul and the sums of the rows of one factor.
const OpDef& matmul_sums();

// Does every row begin at a multiple of 16 bytes if the matrices do? (Tensor cores want that: the
// library copies other matrices, or takes eight times as long.)
bool have_aligned_rows(std::span<const Type> matrices);

}  // namespace megjit::runtime
