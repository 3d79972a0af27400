// runtime/ops/operand_layouts.h -- in which order of memory an op's operands may lie. One rule for
// eager calls, where the operands' own layouts decide, and for the layout pass, which chooses them.
//   1. Activations (OperandKind) are read channels-last; so are all operands of ops that only move
//      elements (OpDef::follows_layout), if any of them lies so.
//   2. An element-wise op reads channels-last if a full-sized operand lies so and its smaller ones
//      (per-channel scales, scalars) have the same bytes in both orders.
//   3. Packed weights (OperandKind) stay packed.
//   4. Everything else is row-major.
#pragma once

#include <span>
#include <vector>

#include "runtime/core/op.h"

namespace megjit::runtime {

enum class ChannelsLast : uint8_t {
    where_it_is,  // for the ops of rule 1, if one of these operands lies so already
    everywhere,  // for all ops of rule 1
};

// The layout that each operand must have; its own, where the op takes that. Result types follow
// from infer().
std::vector<Layout> operand_layouts(const OpDef& op, std::span<const Type> inputs,
                                    ChannelsLast channels_last);

}  // namespace megjit::runtime
