#include "backends/halide/body.h"

#include <algorithm>

#include "backends/halide/emit_scalar.h"

namespace megjit::halide_backend {

using runtime::ScalarInst;
using runtime::ScalarOp;

void Body::emit_inst(Code& code, int id, const Bases& bases, const Piece& piece) {
    const ScalarInst& inst = kernel_.program[id];
    Expr& value = values_[static_cast<size_t>(id)];
    if (inst.op == ScalarOp::input) {
        const size_t inputs = kernel_.inputs.size();
        value = inst.bits < inputs ? operands_.load(code, inst.bits, bases, piece)
                                   : reduced_[inst.bits - inputs];
        return;
    }
    value = halide_backend::emit(inst, operands_of(id));
    if (inst.op != ScalarOp::constant) value = code.let("v", value);
}

std::vector<Expr> Body::operands_of(int id) const {
    const ScalarInst& inst = kernel_.program[id];
    // An extremum, or what its NaN is chosen over.
    const auto is_chosen = [&](int arg) {
        const ScalarInst& from = kernel_.program[arg];
        return from.type == runtime::ScalarType::f32 && from.op == ScalarOp::select &&
               (kernel_.program.is_extremum(arg) || kernel_.program.is_extremum(from.args[2]));
    };
    std::vector<Expr> operands;
    int lanes = 1;
    for (int k = 0; k < runtime::arity_of(inst.op); ++k) {
        operands.push_back(value(inst.args[k]));
        lanes = std::max(lanes, operands.back().type().lanes());
        // LLVM takes the larger of 0 and (the larger of 0 and x) for the larger of 0 and x,
        // whatever its comparisons say of NaN and of the sign of 0.
        if (kernel_.program.is_extremum(id) && is_chosen(inst.args[k]))
            operands.back() = fenced(operands.back(), opaque_zero_);
    }
    for (Expr& operand : operands) operand = spread(operand, lanes);
    return operands;
}

}  // namespace megjit::halide_backend
