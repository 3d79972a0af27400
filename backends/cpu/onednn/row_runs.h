// backends/cpu/onednn/row_runs.h -- products whose rows are computed in runs of few lengths.
// oneDNN's code holds for one number of rows, and making it takes 0.1 ms and 200 kB: a program
// whose number of rows changes from call to call would make it again for each. Here 100 rows are
// runs of 64, 32 and 4, whose code other numbers of rows use too.
#pragma once

#include "backends/cpu/executable.h"
#include "runtime/ops/matmul.h"

namespace megjit::cpu {

// Returns the length of the first run, which is the longest; p.m where the rows are not divided.
int64_t longest_run(const runtime::MatmulProblem& p, runtime::DType dtype);

// Prepares a call of matmul or matmul_epilogue that way. Null where the rows are not divided.
Prepared by_row_runs(const runtime::OpCall& call, std::span<const runtime::Type> outputs,
                     const runtime::MatmulProblem& p);

}  // namespace megjit::cpu
