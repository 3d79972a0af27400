#include "backends/halide/body.h"

#include <algorithm>

#include "backends/halide/emit_scalar.h"

namespace megjit::halide_backend {

using codegen::KernelIR;
using runtime::ScalarInst;
using runtime::ScalarOp;

Pass pass_of(const KernelIR& kernel, const std::vector<KernelIR::Level>& levels, int number) {
    Pass pass;
    pass.needed.resize(levels.size());
    const auto need = [&](int root) { pass.needed[static_cast<size_t>(root)] = true; };
    const auto is_completed = [&](int root) {
        return levels[static_cast<size_t>(root)].pass == number;
    };
    for (size_t r = 0; r < kernel.reductions.size(); ++r)
        if (is_completed(kernel.reductions[r].arg)) {
            pass.reductions.push_back(r);
            need(kernel.reductions[r].arg);
        }
    for (size_t k = 0; k < kernel.outputs.size(); ++k)
        if (!kernel.outputs[k].per_row && is_completed(kernel.results[k])) {
            pass.outputs.push_back(k);
            need(kernel.results[k]);
        }
    for (size_t id = levels.size(); id-- > 0;) {
        if (levels[id].per_row) pass.needed[id] = false;  // known already
        const ScalarInst& inst = kernel.program[static_cast<int>(id)];
        for (int k = 0; pass.needed[id] && k < runtime::arity_of(inst.op); ++k) need(inst.args[k]);
    }
    return pass;
}

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
    std::vector<Expr> operands;
    int lanes = 1;
    for (int k = 0; k < runtime::arity_of(inst.op); ++k) {
        operands.push_back(value(inst.args[k]));
        lanes = std::max(lanes, operands.back().type().lanes());
        // LLVM takes the larger of 0 and (the larger of 0 and x) for the larger of 0 and x,
        // whatever its comparisons say of NaN and of the sign of 0.
        if (operands.back().type().is_float() && kernel_.program.is_extremum(id) &&
            kernel_.program.is_extremum(inst.args[k]))
            operands.back() = fenced(operands.back(), opaque_zero_);
    }
    for (Expr& operand : operands) operand = spread(operand, lanes);
    return operands;
}

}  // namespace megjit::halide_backend
