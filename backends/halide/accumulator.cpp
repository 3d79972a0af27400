#include "backends/halide/accumulator.h"

#include <bit>
#include <limits>

#include "backends/halide/emit_scalar.h"

namespace megjit::halide_backend {

using namespace Halide::Internal;
using codegen::Reduce;
using runtime::ScalarOp;
using runtime::ScalarType;

namespace {

constexpr int32_t kNoPlace = std::numeric_limits<int32_t>::max();

Expr number(float value, int lanes = 1) {
    return constant(ScalarType::f32, std::bit_cast<uint32_t>(value), lanes);
}
Expr add(const Expr& a, const Expr& b) { return apply(ScalarOp::add, a, b); }
Expr sub(const Expr& a, const Expr& b) { return apply(ScalarOp::sub, a, b); }
Expr mul(const Expr& a, const Expr& b) { return apply(ScalarOp::mul, a, b); }
Expr div(const Expr& a, const Expr& b) { return apply(ScalarOp::div, a, b); }

bool is_sum(Reduce kind, ScalarType type) {
    return type == ScalarType::f32 && (kind == Reduce::sum || kind == Reduce::mean);
}
bool wants_place(Reduce kind) { return kind == Reduce::argmax || kind == Reduce::argmin; }

// b1 is accumulated as i32: memory has no vectors of bits.
ScalarType kept_type(ScalarType type) { return type == ScalarType::b1 ? ScalarType::i32 : type; }

// What is larger than nothing at all.
Expr start_of(Reduce kind, ScalarType type, int lanes) {
    const bool is_max = kind == Reduce::max || kind == Reduce::argmax,
               is_min = kind == Reduce::min || kind == Reduce::argmin;
    if (type == ScalarType::f32) {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        return number(is_max                 ? -kInfinity
                      : is_min               ? kInfinity
                      : kind == Reduce::prod ? 1.f
                                             : 0.f,
                      lanes);
    }
    const int32_t start = is_max ? INT32_MIN : is_min ? INT32_MAX : kind == Reduce::prod ? 1 : 0;
    return constant(ScalarType::i32, static_cast<uint32_t>(start), lanes);
}

ScalarOp op_of(Reduce kind) {
    switch (kind) {
        case Reduce::sum:
        case Reduce::mean:
        case Reduce::variance: return ScalarOp::add;
        case Reduce::prod: return ScalarOp::mul;
        case Reduce::max:
        case Reduce::argmax: return ScalarOp::max;
        case Reduce::min:
        case Reduce::argmin: return ScalarOp::min;
    }
    return ScalarOp::add;
}

// Does b come before a, by value alone? NaN is the largest and the smallest.
Expr beats(Reduce kind, const Expr& b, const Expr& a) {
    const Expr better =
        kind == Reduce::argmax ? apply(ScalarOp::lt, a, b) : apply(ScalarOp::lt, b, a);
    if (!a.type().is_float()) return better;
    return Or::make(better, And::make(apply(ScalarOp::ne, b, b), apply(ScalarOp::eq, a, a)));
}

}  // namespace

Accumulator::Accumulator(Code& code, Reduce kind, ScalarType type, int lanes)
    : kind_(kind), type_(type), lanes_(lanes) {
    State start = {start_of(kind, kept_type(type), lanes)};
    if (is_sum(kind, type)) start.push_back(number(0, lanes));  // part, total
    if (wants_place(kind))
        start.push_back(
            constant(ScalarType::i32, static_cast<uint32_t>(kNoPlace), lanes));  // value, place
    if (kind == Reduce::variance)
        start = State(3, number(0, lanes));  // count, mean, sum of squares around it
    for (const Expr& value : start) arrays_.push_back(code.allocate("state", value.type()));
    store(code, start);
}

bool Accumulator::wants_parts() const { return is_sum(kind_, type_); }

Expr Accumulator::lanes() const {
    return lanes_ == 1 ? Expr(0) : Ramp::make(Expr(0), Expr(1), lanes_);
}

Accumulator::State Accumulator::load(Code& code) const {
    State state;
    for (size_t i = 0; i < arrays_.size(); ++i) {
        const ScalarType type = wants_place(kind_) && i == 1 ? ScalarType::i32 : kept_type(type_);
        state.push_back(code.let(
            "s", Load::make(type_of(type, lanes_), arrays_[i], lanes(), {}, Halide::Parameter(),
                            const_true(lanes_), ModulusRemainder(lanes_, 0))));
    }
    return state;
}

void Accumulator::store(Code& code, const State& state) const {
    for (size_t i = 0; i < state.size(); ++i)
        code.add(Store::make(arrays_[i], state[i], lanes(), Halide::Parameter(), const_true(lanes_),
                             ModulusRemainder(lanes_, 0)));
}

void Accumulator::end_part(Code& code) const {
    const State state = load(code);
    store(code, {number(0, lanes_), add(state[1], state[0])});
}

Accumulator::State Accumulator::with(Code& code, const State& state, const Expr& value,
                                     const Expr& place) const {
    if (is_sum(kind_, type_)) return {add(state[0], value), state[1]};
    if (wants_place(kind_)) {
        const Expr is_better = code.let("better", beats(kind_, value, state[0]));
        return {Select::make(is_better, value, state[0]), Select::make(is_better, place, state[1])};
    }
    if (kind_ == Reduce::variance) {  // Welford 1962
        const Expr count = code.let("count", add(state[0], number(1, lanes_)));
        const Expr step = code.let("step", sub(value, state[1]));
        const Expr mean = code.let("mean", add(state[1], div(step, count)));
        return {count, mean, add(state[2], mul(step, sub(value, mean)))};
    }
    return {apply(op_of(kind_), state[0], value)};
}

void Accumulator::take(Code& code, const Expr& value, const Expr& place, const Expr& mask) const {
    Expr taken = spread(value, lanes_);
    if (type_ == ScalarType::b1)
        taken = Select::make(taken, constant(ScalarType::i32, 1, lanes_),
                             constant(ScalarType::i32, 0, lanes_));
    taken = code.let("x", taken);
    const State before = load(code);
    State after = with(code, before, taken, place);
    if (mask.defined())
        for (size_t i = 0; i < after.size(); ++i)
            after[i] = Select::make(mask, after[i], before[i]);
    store(code, after);
}

Accumulator::State Accumulator::merged(Code& code, const State& a, const State& b) const {
    if (is_sum(kind_, type_)) return {a[0], add(a[1], b[1])};  // no part is open
    if (wants_place(kind_)) {
        const Expr is_behind =
            Or::make(beats(kind_, a[0], b[0]),
                     And::make(Not::make(beats(kind_, b[0], a[0])), LE::make(a[1], b[1])));
        const Expr a_wins = code.let("wins", is_behind);
        return {Select::make(a_wins, a[0], b[0]), Select::make(a_wins, a[1], b[1])};
    }
    if (kind_ == Reduce::variance) {  // Chan, Golub and LeVeque 1979
        const Expr count = code.let("count", add(a[0], b[0]));
        const Expr step = code.let("step", sub(b[1], a[1]));
        const Expr share = code.let(
            "share", div(b[0], apply(ScalarOp::max, count, number(1, count.type().lanes()))));
        return {count, add(a[1], mul(step, share)),
                add(add(a[2], b[2]), mul(mul(step, step), mul(a[0], share)))};
    }
    return {apply(op_of(kind_), a[0], b[0])};
}

Accumulator::State Accumulator::of_all_lanes(Code& code, State state) const {
    for (int half = lanes_ / 2; half > 0; half /= 2) {
        State low, high;
        for (const Expr& value : state) {
            low.push_back(code.let("low", Shuffle::make_slice(value, 0, 1, half)));
            high.push_back(code.let("high", Shuffle::make_slice(value, half, 1, half)));
        }
        state = merged(code, low, high);
        for (Expr& value : state) value = code.let("s", value);
    }
    return state;
}

Expr Accumulator::result(Code& code, const State& state, const Expr& count) const {
    const int lanes = state[0].type().lanes();
    const Expr n = spread(Halide::cast<float>(count), lanes);
    if (kind_ == Reduce::mean) return code.let("mean", div(state[1], n));
    if (kind_ == Reduce::variance) return code.let("variance", div(state[2], n));
    if (wants_place(kind_)) {  // nothing beats the start: all values equal it, and the first of
                               // them is the first of all
        const Expr none =
            EQ::make(state[1], constant(ScalarType::i32, static_cast<uint32_t>(kNoPlace), lanes));
        return code.let("place", Select::make(none, constant(ScalarType::i32, 0, lanes), state[1]));
    }
    if (type_ == ScalarType::b1)
        return code.let("any", NE::make(state[0], constant(ScalarType::i32, 0, lanes)));
    return state.size() == 2 ? state[1] : state[0];
}

}  // namespace megjit::halide_backend
