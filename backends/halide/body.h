// backends/halide/body.h -- the instructions of a kernel at one place of its iteration space, and
// what each pass over a row is for. Shared by the loops of CPUs and of GPUs.
#pragma once

#include "backends/halide/operands.h"

namespace megjit::halide_backend {

// The reductions and outputs of elements that pass `number` completes, and the instructions of
// elements they need.
struct Pass {
    std::vector<size_t> reductions, outputs;
    std::vector<bool> needed;  // per instruction
};
Pass pass_of(const codegen::KernelIR& kernel, const std::vector<codegen::KernelIR::Level>& levels,
             int number);

class Body {
public:
    // `opaque_zero`: an i32 that is 0, which LLVM cannot know.
    Body(const codegen::KernelIR& kernel, const Operands& operands, const Expr& opaque_zero)
        : kernel_(kernel),
          operands_(operands),
          opaque_zero_(opaque_zero),
          values_(static_cast<size_t>(kernel.program.size())),
          reduced_(kernel.reductions.size()) {}

    // All instructions for which wanted(id), in order.
    template <class Wanted>
    void emit(Code& code, const Bases& bases, const Piece& piece, const Wanted& wanted) {
        for (int id = 0; id < kernel_.program.size(); ++id)
            if (wanted(static_cast<size_t>(id))) emit_inst(code, id, bases, piece);
    }
    // Their values: of the piece emitted last. One value where it is the same in all lanes.
    const Expr& value(int id) const { return values_[static_cast<size_t>(id)]; }
    const Expr& result(size_t k) const { return value(kernel_.results[k]); }
    void set_reduced(size_t reduction, const Expr& value) { reduced_[reduction] = value; }

private:
    void emit_inst(Code& code, int id, const Bases& bases, const Piece& piece);
    std::vector<Expr> operands_of(int id) const;

    const codegen::KernelIR& kernel_;
    const Operands& operands_;
    Expr opaque_zero_;
    std::vector<Expr> values_;  // per instruction
    std::vector<Expr> reduced_;  // per reduction that is known
};

}  // namespace megjit::halide_backend
