// runtime/ops/attention.h -- attention as type rules and kernels see it: the op's attributes and
// the shapes of its operands are read here, once.
#pragma once

#include <array>
#include <optional>

#include "runtime/core/op.h"

namespace megjit::runtime {

struct AttentionProblem {
    static constexpr int kMostMasks = 3;

    int64_t batch = 0, heads = 0, queries = 0, keys = 0;
    int64_t width = 0, value_width = 0;  // elements of a query and a key, and of a value
    int64_t key_heads = 0;  // each one serves heads / key_heads neighbouring heads of queries
    double scale = 1, drop_prob = 0;
    bool is_causal = false;
    bool gives_zeros = false;  // a query that sees no key gets zeros; else NaN
    int masks = 0;  // number of masks, which are added one after the other
    int first_mask = -1, seen = -1, hidden = -1, random_key = -1;  // operands; -1: none
    Shape scores() const { return {batch, heads, queries, keys}; }
};

// From this size on, backward recomputes what rounding took from the logarithm of the sums.
inline constexpr float kRoundedLse = 64;

// Describes a call of attention, attention_grad, or one of the two on parts.
AttentionProblem attention_problem(const OpCall& call);

// Where the elements of [n, heads, length, width] lie in a tensor, in elements. Neighbours along
// the width are neighbours in memory; the stride of an axis of extent 1 is 0.
struct HeadsView {
    int64_t offset = 0;
    std::array<int64_t, 3> strides{};  // along n, heads and length

    bool operator==(const HeadsView&) const = default;
};
using HeadsExtents = std::array<int64_t, 4>;  // n, heads, length, width

// Describes a tensor that holds these elements alone, in that order.
HeadsView dense_view(const HeadsExtents& extents);

// The place of a view as a box of its tensor, which is seen with four axes.
struct HeadsBox {
    std::array<int, 4> axes{};  // which of [n, heads, length, width], in the order of memory
    Shape shape = {};  // shape of the tensor as it is seen
    std::array<int64_t, 4> begin{}, end{};

    bool meets(const HeadsBox& other) const;  // also true where the answer is unknown
};
// Returns nothing where the view is no box, or reaches beyond a tensor of `numel` elements.
std::optional<HeadsBox> box_of(const HeadsView& view, const HeadsExtents& extents, int64_t numel);

// An operand or a result of attention (but not lse): a part of an input or of an output.
struct HeadsPart {
    int tensor = 0;  // which input or output it lies in
    HeadsExtents extents{};
    HeadsView view = {};
};
// The operands q, k and v; for a gradient also y and dy.
struct AttentionParts {
    HeadsPart q, k, v, y, dy;  // y is a result of attention, and an operand of its gradient
    HeadsPart dq, dk, dv;  // for a gradient
};
AttentionParts attention_parts(const OpCall& call);

// The ops on parts of tensors (attention_parts.cpp).
namespace ops {
const OpDef& attention_of_parts();
const OpDef& attention_grad_of_parts();
}  // namespace ops

// Attributes of attention_of_parts and attention_grad_of_parts that follow those of the op on whole
// tensors.
Attrs attrs_of_parts(const Attrs& whole, const AttentionProblem& problem,
                     const AttentionParts& parts, bool is_grad);

// Returns the strides of a mask, `seen` or `hidden`, along the axes of the scores: 0 where it is
// broadcast.
std::array<int64_t, 4> mask_strides(const Shape& mask);

}  // namespace megjit::runtime
