// runtime/ops/ordered.h -- ops that other processes see: each runs exactly once, in the order of
// the program.
//
// Their last operand, `after`, may be the last result of another one, a number without a meaning.
// Eager calls leave it out; in a graph it makes the order a dependency like others.
#pragma once

#include "runtime/core/op.h"

namespace megjit::runtime {

inline bool is_ordered(const OpDef& op) {
    return !op.inputs.empty() && op.inputs.back().kind == OperandKind::after;
}

}  // namespace megjit::runtime
