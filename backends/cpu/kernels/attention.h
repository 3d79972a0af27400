// backends/cpu/kernels/attention.h -- attention in blocks of kQueries queries and kKeys keys, whose
// scores never leave the caches. They are transposed, [keys][queries]: so lanes run along queries,
// softmax needs no sums across lanes, and no operand but the block's queries is copied. For a
// single query lanes run along keys and widths.
//
// The running maximum and total of each query follow Milakov & Gimelshein 2018, "Online normalizer
// calculation for softmax"; backward is that of Dao et al. 2022, "FlashAttention".
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/ops/attention.h"
#include "runtime/ops/philox.h"

namespace megjit::cpu {

struct AttentionShape {
    static constexpr int64_t kQueries = 64, kKeys = 64;
    static constexpr int64_t kWidth = 16;  // widths are multiples of this
    static constexpr int kMasks = runtime::AttentionProblem::kMostMasks;
    static bool is_rounded(float lse) { return std::abs(lse) >= runtime::kRoundedLse; }

    // Strides of an operand that is broadcast to the scores: 0 along an axis of extent 1.
    struct Strides {
        int64_t query = 0, key = 0;
    };

    int64_t queries = 0, keys = 0, width = 0, value_width = 0;
    float scale = 1;
    bool is_causal = false;
    float kept = 1;  // dropout multiplies kept scores by this
    uint32_t dropped_below = 0;  // words below it are dropped; 0: there is no dropout
    bool gives_zeros = false;  // a query that sees no key gets zeros; else NaN
    int masks = 0;
    Strides mask[kMasks] = {}, seen = {}, hidden = {};

    int64_t blocks() const { return (queries + kQueries - 1) / kQueries; }
    // Is it a single query, whose scores are computed in another way?
    bool is_one(int64_t count) const { return count == 1 && !dropped_below; }
    // How many floats the computation of a block needs.
    int64_t forward_floats() const { return width * kQueries + 2 * kQueries * kKeys; }
    int64_t backward_floats() const {
        return (width + value_width) * kQueries + 3 * kQueries * kKeys;
    }
};

// The operands of one head.
struct AttentionHead {
    const float *q = nullptr, *k = nullptr, *v = nullptr;
    const float* mask[AttentionShape::kMasks] = {};  // these are added one after the other
    const uint8_t* seen = nullptr;  // where this is 0 the score is that of `hidden`
    const float* hidden = nullptr;
    runtime::Philox random = {};
    uint64_t first_score = 0;  // number of the head's first score among all scores
};

// `count` queries from `query` on: at most kQueries.
struct AttentionBlock {
    int64_t query = 0, count = 0;
};

// Operands and results of backward: rows of the block, or of the head.
struct AttentionGrads {
    const float *y = nullptr, *lse = nullptr, *dy = nullptr;  // rows of the head
    const float* rest = nullptr;  // the part that rounding took from lse; null: nothing
    float *dq = nullptr, *dk = nullptr, *dv = nullptr;  // rows of the head; added to
};

}  // namespace megjit::cpu
