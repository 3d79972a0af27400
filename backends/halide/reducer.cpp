#include "backends/halide/reducer.h"

#include "backends/halide/emit_scalar.h"

namespace megjit::halide_backend {

using namespace Halide::Internal;
using codegen::Finish;
using codegen::Join;
using runtime::ScalarOp;
using runtime::ScalarType;
using State = Reducer::State;

namespace {

Halide::Type value_type(const codegen::Accumulator& by, bool wide, int lanes) {
    return wide && by.wide ? Halide::Float(64, lanes) : type_of(by.type, lanes);
}

State neutral(const codegen::Accumulator& by, bool wide, int lanes) {
    const Halide::Type type = value_type(by, wide, lanes);
    const double value = by.neutral();
    State state = {type.is_float() ? make_const(type, value)
                                   : make_const(type, static_cast<int64_t>(value))};
    if (by.has_place()) state.push_back(make_zero(Halide::Int(32, lanes)));
    return state;
}

Expr unordered(const Expr& a) { return apply(ScalarOp::ne, a, a); }  // NaN
Expr is_better(bool largest, const Expr& b, const Expr& a) {
    return largest ? apply(ScalarOp::lt, a, b) : apply(ScalarOp::lt, b, a);
}

// Does b replace a? Of equal values the lower place stays, and so does the first NaN.
Expr wins(bool largest, std::span<const Expr> a, std::span<const Expr> b, bool is_behind) {
    const bool is_float = a[0].type().is_float();
    Expr better = is_better(largest, b[0], a[0]), ties = apply(ScalarOp::eq, a[0], b[0]);
    if (is_float) {
        better = Or::make(better, And::make(unordered(b[0]), Not::make(unordered(a[0]))));
        ties = Or::make(ties, And::make(unordered(b[0]), unordered(a[0])));
    }
    return is_behind ? better : Or::make(better, And::make(ties, LT::make(b[1], a[1])));
}

// Two lanes, or a lane and what lies behind it.
State joined(Code& code, const codegen::Accumulator& by, std::span<const Expr> a,
             std::span<const Expr> b, bool is_behind) {
    const bool largest = by.join == Join::max || by.join == Join::first_max;
    switch (by.join) {
        case Join::add: return {code.let("s", apply(ScalarOp::add, a[0], b[0]))};
        case Join::mul: return {code.let("s", apply(ScalarOp::mul, a[0], b[0]))};
        case Join::max:
        case Join::min: {
            const Expr best = Select::make(is_better(largest, b[0], a[0]), b[0], a[0]);
            if (!best.type().is_float()) return {code.let("s", best)};
            return {code.let("s", Select::make(unordered(b[0]), b[0], best))};
        }
        case Join::first_max:
        case Join::first_min: {
            const Expr second = code.let("wins", wins(largest, a, b, is_behind));
            return {code.let("s", Select::make(second, b[0], a[0])),
                    code.let("p", Select::make(second, b[1], a[1]))};
        }
    }
    return {};
}

Expr in_f64(const Expr& value) {
    return Cast::make(Halide::Float(64, value.type().lanes()), value);
}

}  // namespace

Reducer::Reducer(Code& code, const codegen::Reduced& reduced, int lanes)
    : reduced_(reduced), lanes_(lanes) {
    for (const codegen::Accumulator& by : reduced.accumulators) {
        slots_.push_back({by, open(code, neutral(by, true, lanes))});
        if (by.chains) slots_.back().chains = open(code, neutral(by, false, lanes));
    }
}

std::vector<std::string> Reducer::open(Code& code, const State& start) const {
    std::vector<std::string> arrays;
    for (const Expr& value : start) arrays.push_back(code.allocate("state", value.type()));
    store(code, arrays, start);
    return arrays;
}

Expr Reducer::lane_numbers() const {
    return lanes_ == 1 ? Expr(0) : Ramp::make(Expr(0), Expr(1), lanes_);
}

State Reducer::load(Code& code, const std::vector<std::string>& arrays, const Slot& slot,
                    bool wide) const {
    State state;
    for (const std::string& array : arrays) {
        const Halide::Type type =
            state.empty() ? value_type(slot.by, wide, lanes_) : Halide::Int(32, lanes_);
        state.push_back(
            code.let("s", Load::make(type, array, lane_numbers(), {}, Halide::Parameter(),
                                     const_true(lanes_), ModulusRemainder(lanes_, 0))));
    }
    return state;
}

void Reducer::store(Code& code, const std::vector<std::string>& arrays, const State& state) const {
    for (size_t i = 0; i < state.size(); ++i)
        code.add(Store::make(arrays[i], state[i], lane_numbers(), Halide::Parameter(),
                             const_true(lanes_), ModulusRemainder(lanes_, 0)));
}

void Reducer::start_chains(Code& code) const {
    for (const Slot& slot : slots_)
        if (slot.by.chains) store(code, slot.chains, neutral(slot.by, false, lanes_));
}

void Reducer::end_chains(Code& code) const {
    for (const Slot& slot : slots_) {
        if (!slot.by.chains) continue;
        State behind = load(code, slot.chains, slot, false);
        if (slot.by.wide) behind[0] = in_f64(behind[0]);
        store(code, slot.lanes,
              joined(code, slot.by, load(code, slot.lanes, slot, true), behind, true));
    }
}

void Reducer::take(Code& code, const Expr& value, const Expr& place, const Expr& mask) const {
    const Expr element = code.let("x", spread(value, lanes_));
    for (const Slot& slot : slots_) {
        const bool wide = !slot.by.chains;
        Expr x = wide && slot.by.wide ? in_f64(element) : element;
        if (slot.by.squares) x = apply(ScalarOp::mul, x, x);
        const auto& arrays = wide ? slot.lanes : slot.chains;
        const State before = load(code, arrays, slot, wide);
        State after = joined(code, slot.by, before, State{x, place}, true);
        if (mask.defined())
            for (size_t i = 0; i < after.size(); ++i)
                after[i] = Select::make(mask, after[i], before[i]);
        store(code, arrays, after);
    }
}

State Reducer::load(Code& code) const {
    State state;
    for (const Slot& slot : slots_)
        for (const Expr& value : load(code, slot.lanes, slot, true)) state.push_back(value);
    return state;
}

State Reducer::merged(Code& code, const State& a, const State& b) const {
    State all;
    for (const Slot& slot : slots_) {
        const size_t at = all.size(), count = slot.lanes.size();
        for (const Expr& value : joined(code, slot.by, std::span(a).subspan(at, count),
                                        std::span(b).subspan(at, count), false))
            all.push_back(value);
    }
    return all;
}

State Reducer::of_all_lanes(Code& code, State state) const {
    for (int half = lanes_ / 2; half > 0; half /= 2) {
        State low, high;
        for (const Expr& value : state) {
            low.push_back(code.let("low", Shuffle::make_slice(value, 0, 1, half)));
            high.push_back(code.let("high", Shuffle::make_slice(value, half, 1, half)));
        }
        state = merged(code, low, high);
    }
    return state;
}

Expr Reducer::result(Code& code, const State& state, const Expr& count) const {
    const int lanes = state[0].type().lanes();
    const auto mean_of = [&](const Expr& sum) {
        return code.let("mean",
                        apply(ScalarOp::div, sum, spread(Halide::cast<double>(count), lanes)));
    };
    Expr result = state[0];
    switch (reduced_.finish) {
        case Finish::value: break;
        case Finish::place: return state[1];
        case Finish::mean: result = mean_of(state[0]); break;
        case Finish::variance: {
            const Expr mean = mean_of(state[0]), zero = make_zero(mean.type());
            result = code.let(
                "v", apply(ScalarOp::sub, mean_of(state[1]), apply(ScalarOp::mul, mean, mean)));
            result = Select::make(apply(ScalarOp::lt, result, zero), zero, result);
        }
    }
    const bool wide = reduced_.accumulators[0].wide;
    return code.let("reduced", wide ? Cast::make(Halide::Float(32, lanes), result) : result);
}

}  // namespace megjit::halide_backend
