// codegen/loops/reducer.h -- the accumulators of codegen/row_plan.h as values: chains and lanes.
#pragma once

#include "codegen/loops/frame.h"

namespace megjit::codegen::loops {

// Accumulates for some reductions of a walk. Chains and lanes hold the values of all accumulators,
// one after the other: a value, and a place if the accumulator has one.
class Reducer {
public:
    Reducer(Frame& frame, std::span<const Reduced> reductions);

    bool needs_places() const;
    size_t chain_values() const { return chain_values_; }
    size_t lane_values() const { return lane_values_; }
    Values start_chains() { return start(false); }  // empty where no accumulator chains
    Values start_lanes() { return start(true); }

    // Takes one vector of elements: `values` of all instructions, for the lanes of `mask` (null:
    // all), with their `place` (i32) if needs_places().
    void take(Values& chains, Values& lanes, const Values& values, Value mask, Value place);
    Values with_chains(const Values& lanes, const Values& chains);  // chains follow the lanes
    Values merged(const Values& a, const Values& b);  // merges lanes of any places
    // `vectors` hold the lanes of a row, one vector after the other: every lane of the result holds
    // all.
    Values folded(std::vector<Values> vectors);
    // The result of each reduction over a row of `elements` (an index).
    Values results(const Values& lanes, Value elements);

private:
    // Where the values of an accumulator are.
    struct Slot {
        Accumulator by;
        size_t reduction = 0;
        size_t lane = 0;  // index of its first value
        size_t chain = 0;  // likewise, if the accumulator chains
        size_t values = 1;
    };
    Values start(bool lanes);
    bool is_float(Value a) const { return b_.type_of(a).kind >= Kind::f32; }
    Value is_nan(Value a) { return b_.compute(ScalarOp::ne, {a, a}); }
    Value compare(bool larger, Value a, Value b) { return larger ? b_.less(b, a) : b_.less(a, b); }
    Value widened(const Slot& slot, Value value) {
        return slot.by.wide ? b_.convert(Kind::f64, value) : value;
    }
    Value taken(const Slot& slot, const Values& values);
    // Joins `b` into `a`; `is_behind`: b comes after a in the row, else it may be at any place.
    void join(const Slot& slot, std::span<Value> a, std::span<const Value> b, bool is_behind);
    Value better(bool larger, Value a, Value b);
    Value wins(bool larger, std::span<const Value> a, std::span<const Value> b, bool is_behind);
    Value as_result(ScalarType type, Join join, Value value);

    Frame& f_;
    Builder& b_;
    std::vector<Reduced> reductions_;
    std::vector<Slot> slots_;
    size_t lane_values_ = 0, chain_values_ = 0;
};

}  // namespace megjit::codegen::loops
