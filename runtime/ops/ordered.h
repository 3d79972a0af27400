// runtime/ops/ordered.h -- ops that other processes see: each runs exactly once, in the order of
// the program. An all_gather that is transient may run again where a graph says so, for the graph
// is the same in every process.
//
// Their last operand, `after`, may be the last result of another such op, a number without a
// meaning. Eager calls leave it out; in a graph it makes the order a dependency like others.
#pragma once

#include "runtime/core/op.h"

namespace megjit::runtime {

inline bool is_ordered(const OpDef& op) {
    return !op.inputs.empty() && op.inputs.back().kind == OperandKind::after;
}
bool is_transient(const OpDef& op, const Attrs& attrs);

}  // namespace megjit::runtime
