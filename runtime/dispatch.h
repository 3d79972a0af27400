// runtime/dispatch.h -- the one door through which every op goes: forward, backward and optimizer.
//   apply -> (trace running: record or match) or (compute now) -> tapes
#pragma once

#include <span>
#include <vector>

#include "runtime/device.h"
#include "runtime/op.h"
#include "runtime/tensor.h"

namespace megjit::runtime {

using Tensors = std::vector<TensorRef>;

// A running trace, seen from below. jit/ implements it.
class Tracer {
public:
    virtual ~Tracer() = default;
    // Returns placeholders (or, in a value trace, computed tensors that are linked to the record).
    virtual Tensors on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs) = 0;
    // A placeholder's data are wanted on the host. Runs what is needed, or throws.
    virtual void on_read(Tensor& tensor) = 0;
};

class Tape;

// State of one thread. There are no other mutable globals in runtime/ but the registries.
struct Context {
    Tracer* tracer = nullptr;
    std::vector<Tape*> tapes;  // open tapes, outermost first
};
Context& context();

// `inputs` are promoted as the op asks. Throws UserError.
Tensors apply(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs);
TensorRef apply1(const OpDef& op, const Attrs& attrs, std::initializer_list<TensorRef> inputs);

// Computes now, unseen by tapes and traces. Inputs must have data.
Tensors compute(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs);

// Data on the host: asks the running trace for placeholders. UserError if there are none to be had.
const void* host_data(Tensor& tensor);

}  // namespace megjit::runtime
