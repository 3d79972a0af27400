// codegen/loops/kept.h -- a value of elements that one walk over a row keeps for later walks, which
// would compute it again.
#pragma once

#include "codegen/row_plan.h"

namespace megjit::codegen::loops {

struct Kept {
    // What a later walk still computes, once it has the value.
    struct Taker {
        size_t walk = 0;
        std::vector<int> elements = {};
    };
    int value = -1;  // -1: there is none
    size_t maker = 0;  // the walk that computes it
    std::vector<int> made = {};  // the instructions that do
    std::vector<Taker> takers = {};
    // A short row's values are kept in memory of the function. For a longer row they are in that
    // output, which the only taker stores anyway and reads nothing else of; -1: they are computed
    // again.
    int output = -1;

    const Taker* taker(size_t walk) const;  // null: the walk takes nothing
};

// Finds the value that saves the most instructions, at least `worth_keeping`.
Kept kept_value(const KernelIR& kernel, const RowPlan& plan, int worth_keeping);

}  // namespace megjit::codegen::loops
