// backends/halide/body.h -- the instructions of a kernel at one place of its iteration space.
// Shared by the loops of CPUs and of GPUs.
#pragma once

#include <span>

#include "backends/halide/operands.h"

namespace megjit::halide_backend {

class Body {
public:
    // `opaque_zero`: an i32 that is 0, which LLVM cannot know.
    Body(const codegen::KernelIR& kernel, const Operands& operands, const Expr& opaque_zero)
        : kernel_(kernel),
          operands_(operands),
          opaque_zero_(opaque_zero),
          values_(static_cast<size_t>(kernel.program.size())),
          reduced_(kernel.reductions.size()) {}

    void emit(Code& code, const Bases& bases, const Piece& piece, std::span<const int> ids) {
        for (const int id : ids) emit_inst(code, id, bases, piece);
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
