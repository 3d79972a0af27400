// runtime/ops/grouped_matmul.h -- products of groups of rows, or of terms, as kernels see them, and
// the error for ends that divide nothing into groups.
#pragma once

#include "runtime/core/op.h"

namespace megjit::runtime {

// Group i goes from the end of group i - 1 to ends[i]. It is a part of the rows of the result
// [m, n], or (has_group_terms) of the terms of a result of its own in [groups, m, n].
struct GroupedProblem {
    int64_t m = 0, n = 0, k = 0, groups = 0;
    bool has_group_terms = false;
    bool ta = false, tb = false;  // the operand is transposed
    int64_t divided() const { return has_group_terms ? k : m; }  // the extent that groups divide
};

GroupedProblem grouped_problem(const OpCall& call);

// The error of ends that fall, or go beyond the extent that they divide.
[[noreturn]] void refuse_ends(int64_t group, int64_t end, int64_t extent);

}  // namespace megjit::runtime
