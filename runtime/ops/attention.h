// runtime/ops/attention.h -- attention as type rules and kernels see it: the op's attributes and
// the shapes of its operands are read here, once.
#pragma once

#include <array>

#include "runtime/core/op.h"

namespace megjit::runtime {

struct AttentionProblem {
    static constexpr int kMostMasks = 3;

    int64_t batch = 0, heads = 0, queries = 0, keys = 0;
    int64_t width = 0, value_width = 0;  // of a query and a key; of a value
    int64_t key_heads = 0;  // each serves heads / key_heads neighbouring heads of queries
    double scale = 1, drop_prob = 0;
    bool is_causal = false;
    bool gives_zeros = false;  // to a query that sees no key; else NaN
    int masks = 0;  // how many are added, one after the other
    int first_mask = -1, seen = -1, hidden = -1, random_key = -1;  // which operands; -1: none
    Shape scores() const { return {batch, heads, queries, keys}; }
};

// From this size on backward finds anew what rounding took from the logarithm of the sums.
inline constexpr float kRoundedLse = 64;

// Describes a call of attention or attention_grad.
AttentionProblem attention_problem(const OpCall& call);
// Returns the strides of a mask, `seen` or `hidden`, along the axes of the scores: 0 where it is
// broadcast.
std::array<int64_t, 4> mask_strides(const Shape& mask);

}  // namespace megjit::runtime
