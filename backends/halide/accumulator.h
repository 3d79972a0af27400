// backends/halide/accumulator.h -- one reduction on its way: vectors on the stack, which LLVM keeps
// in registers.
#pragma once

#include "backends/halide/code.h"
#include "codegen/kernel_ir.h"

namespace megjit::halide_backend {

class Accumulator {
public:
    // One vector or several: a partial result of the lanes.
    using State = std::vector<Expr>;

    // Opens the state, `lanes` wide, in `code`.
    Accumulator(Code& code, codegen::Reduce kind, runtime::ScalarType type, int lanes);

    // f32 sums grow in parts of a few thousand elements: the parts have small errors, and there are
    // few of them.
    bool wants_parts() const;
    void end_part(Code& code) const;
    // Takes in one value a lane, where `mask` is true (everywhere if it is undefined). `place`
    // (i32) is the value's index in the reduced axes.
    void take(Code& code, const Expr& value, const Expr& place, const Expr& mask) const;
    State load(Code& code) const;
    // Of two states of different elements.
    State merged(Code& code, const State& a, const State& b) const;
    State of_all_lanes(Code& code, State state) const;  // one lane
    // The reduction of `count` (i64) values, a lane.
    Expr result(Code& code, const State& state, const Expr& count) const;

private:
    void store(Code& code, const State& state) const;
    State with(Code& code, const State& state, const Expr& value, const Expr& place) const;
    Expr lanes() const;  // the index of a whole vector

    codegen::Reduce kind_;
    runtime::ScalarType type_;  // of what is taken
    int lanes_;
    std::vector<std::string> arrays_;
};

}  // namespace megjit::halide_backend
