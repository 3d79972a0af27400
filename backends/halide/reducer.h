// backends/halide/reducer.h -- one reduction on its way: its accumulators (codegen/row_plan.h) are
// vectors on the stack, which LLVM keeps in registers.
#pragma once

#include <span>

#include "backends/halide/code.h"
#include "codegen/row_plan.h"

namespace megjit::halide_backend {

class Reducer {
public:
    // The lanes of all accumulators, one after the other: a value, and where it has one a place.
    using State = std::vector<Expr>;

    // Opens the lanes, `lanes` of them in a vector, in `code`.
    Reducer(Code& code, const codegen::Reduced& reduced, int lanes);

    void start_chains(Code& code) const;
    // Takes in one value a lane, where `mask` is true (everywhere if it is undefined). `place`
    // (i32) is the value's index in the reduced axes.
    void take(Code& code, const Expr& value, const Expr& place, const Expr& mask) const;
    void end_chains(Code& code) const;  // the lanes take them
    State load(Code& code) const;
    State merged(Code& code, const State& a, const State& b) const;  // of any places
    State of_all_lanes(Code& code, State state) const;  // one lane
    // The reduction of `count` (i64) values, a lane.
    Expr result(Code& code, const State& state, const Expr& count) const;

private:
    struct Slot {
        codegen::Accumulator by;
        std::vector<std::string> lanes, chains = {};  // arrays: a value, a place
    };
    std::vector<std::string> open(Code& code, const State& start) const;
    State load(Code& code, const std::vector<std::string>& arrays, const Slot& slot,
               bool wide) const;
    void store(Code& code, const std::vector<std::string>& arrays, const State& state) const;
    Expr lane_numbers() const;

    const codegen::Reduced& reduced_;
    int lanes_;
    std::vector<Slot> slots_;
};

}  // namespace megjit::halide_backend
