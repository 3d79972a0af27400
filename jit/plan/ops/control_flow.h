// jit/plan/ops/control_flow.h -- scan, while_loop and cond: ops that hold graphs (subgraph.h), and
// calls of them with bodies that were recorded; what these have captured become operands. scan maps
// (carry, x[i]) to (carry, y[i]), trip after trip; its gradient is a scan from the other end.
// while_loop maps a carry to a carry while its condition holds. cond runs one of two graphs of the
// same operands.
#pragma once

#include "jit/step/body_recorder.h"

namespace megjit::jit {

void register_control_flow_ops();  // after those of runtime/; idempotent

// Returns the last carry, then all y, stacked. `slices`: x, of `trips` elements each. A body that
// draws random numbers draws others in each trip, as if they were run one after the other.
runtime::Tensors scan(const BodyRecorder& body, const runtime::Tensors& carry,
                      const runtime::Tensors& slices, int64_t trips, bool is_reverse);

// What an op that goes step by step (OpDef::loop) gives, as a scan of its steps.
runtime::Tensors scan(const runtime::OpCall& call, std::span<const TensorRef> inputs);

runtime::Tensors while_loop(const BodyRecorder& condition, const BodyRecorder& body,
                            const runtime::Tensors& carry);

// Both branches return the same types.
runtime::Tensors cond(const TensorRef& predicate, const BodyRecorder& if_true,
                      const BodyRecorder& if_false);

}  // namespace megjit::jit
