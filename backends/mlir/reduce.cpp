#include "backends/mlir/reduce.h"

#include <numeric>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace megjit::mlir_backend {

using namespace mlir;
using codegen::Accumulator;
using codegen::Finish;
using codegen::Join;
using codegen::Reduced;
using runtime::ScalarType;
using FCmp = arith::CmpFPredicate;
using ICmp = arith::CmpIPredicate;

namespace {

bool is_float(Value lanes) { return isa<FloatType>(getElementTypeOrSelf(lanes.getType())); }

}  // namespace

Reducer::Reducer(Frame& frame, ArrayRef<Reduced> reductions)
    : f_(frame), reductions_(reductions.begin(), reductions.end()) {
    for (size_t r = 0; r < reductions_.size(); ++r)
        for (const Accumulator& by : reductions_[r].accumulators) {
            const size_t values = by.has_place() ? 2 : 1;
            slots_.push_back({by, r, lane_values_, chain_values_, values});
            lane_values_ += values;
            if (by.chains) chain_values_ += values;
        }
}

bool Reducer::needs_places() const {
    return std::any_of(slots_.begin(), slots_.end(),
                       [](const Slot& slot) { return slot.by.has_place(); });
}

Value Reducer::constant(Type element, double value) {
    const Attribute number =
        isa<FloatType>(element)
            ? Attribute(f_.b.getFloatAttr(element, value))
            : Attribute(f_.b.getIntegerAttr(element, static_cast<int64_t>(value)));
    return arith::ConstantOp::create(f_.b,
                                     SplatElementsAttr::get(f_.scalars.vector_of(element), number));
}

Values Reducer::start(bool lanes) {
    Values values;
    for (const Slot& slot : slots_) {
        if (!lanes && !slot.by.chains) continue;
        const Type element = slot.by.type == ScalarType::i32 ? Type(f_.b.getI32Type())
                             : lanes && slot.by.wide         ? Type(f_.b.getF64Type())
                                                             : Type(f_.b.getF32Type());
        values.push_back(constant(element, slot.by.neutral()));
        if (slot.by.has_place()) values.push_back(constant(f_.b.getI32Type(), 0));
    }
    return values;
}
Values Reducer::start_chains() { return start(false); }
Values Reducer::start_lanes() { return start(true); }

Value Reducer::is_nan(Value a) { return arith::CmpFOp::create(f_.b, FCmp::UNO, a, a); }

Value Reducer::compare(bool larger, Value a, Value b) {
    if (is_float(a)) return arith::CmpFOp::create(f_.b, larger ? FCmp::OGT : FCmp::OLT, a, b);
    return arith::CmpIOp::create(f_.b, larger ? ICmp::sgt : ICmp::slt, a, b);
}

// What is better replaces `a`, unless that is NaN; and NaN replaces all. The fence keeps the first
// choice apart, which is one instruction.
Value Reducer::better(bool larger, Value a, Value b) {
    const Value best = arith::SelectOp::create(f_.b, compare(larger, b, a), b, a);
    if (!is_float(a)) return best;
    return arith::SelectOp::create(f_.b, is_nan(b), b, f_.scalars.fenced(best));
}

// Of (value, place) pairs: does the second replace the first?
Value Reducer::wins(bool larger, ArrayRef<Value> a, ArrayRef<Value> c, bool is_behind) {
    const auto both = [&](Value x, Value y) -> Value { return arith::AndIOp::create(f_.b, x, y); };
    const auto any = [&](Value x, Value y) -> Value { return arith::OrIOp::create(f_.b, x, y); };
    const auto ordered = [&](Value x) -> Value {
        return arith::CmpFOp::create(f_.b, FCmp::ORD, x, x);
    };
    if (is_behind) {  // of equal values the first stays, and so does the first NaN
        if (!is_float(a[0])) return compare(larger, c[0], a[0]);
        const FCmp better_or_nan = larger ? FCmp::UGT : FCmp::ULT;
        return both(arith::CmpFOp::create(f_.b, better_or_nan, c[0], a[0]), ordered(a[0]));
    }
    Value is_better = compare(larger, c[0], a[0]), ties;
    if (is_float(a[0])) {
        ties = any(arith::CmpFOp::create(f_.b, FCmp::OEQ, c[0], a[0]),
                   both(is_nan(c[0]), is_nan(a[0])));
        is_better = any(is_better, both(is_nan(c[0]), ordered(a[0])));
    } else {
        ties = arith::CmpIOp::create(f_.b, ICmp::eq, c[0], a[0]);
    }
    return any(is_better, both(ties, arith::CmpIOp::create(f_.b, ICmp::slt, c[1], a[1])));
}

void Reducer::join(const Slot& slot, Value* a, ArrayRef<Value> c, bool is_behind) {
    const bool floats = is_float(a[0]);
    switch (slot.by.join) {
        case Join::add:
            a[0] = floats ? Value(arith::AddFOp::create(f_.b, a[0], c[0]))
                          : Value(arith::AddIOp::create(f_.b, a[0], c[0]));
            return;
        case Join::mul:
            a[0] = floats ? Value(arith::MulFOp::create(f_.b, a[0], c[0]))
                          : Value(arith::MulIOp::create(f_.b, a[0], c[0]));
            return;
        case Join::max:
        case Join::min: a[0] = better(slot.by.join == Join::max, a[0], c[0]); return;
        case Join::first_max:
        case Join::first_min: {
            const Value second =
                wins(slot.by.join == Join::first_max, ArrayRef<Value>(a, 2), c, is_behind);
            for (const size_t v : {0, 1}) a[v] = arith::SelectOp::create(f_.b, second, c[v], a[v]);
        }
    }
}

Value Reducer::widened(const Slot& slot, Value value) {
    if (!slot.by.wide) return value;
    return arith::ExtFOp::create(f_.b, f_.scalars.vector_of(f_.b.getF64Type()), value,
                                 arith::FastMathFlagsAttr());
}

// The element that an accumulator takes, as a chain or as a lane takes it.
Value Reducer::taken(const Slot& slot, const Values& values) {
    Value x = values[static_cast<size_t>(reductions_[slot.reduction].arg)];
    if (!slot.by.chains) x = widened(slot, x);
    return slot.by.squares ? Value(arith::MulFOp::create(f_.b, x, x)) : x;
}

void Reducer::take(Values& chains, Values& lanes, const Values& values, const Step& step) {
    for (const Slot& slot : slots_) {
        Value* to = slot.by.chains ? &chains[slot.chain] : &lanes[slot.lane];
        const Values old(to, to + slot.values);
        join(slot, to, {taken(slot, values), step.place}, true);
        if (step.mask)
            for (size_t v = 0; v < slot.values; ++v)
                to[v] = arith::SelectOp::create(f_.b, step.mask, to[v], old[v]);
    }
}

Values Reducer::with_chains(const Values& lanes, const Values& chains) {
    Values all = lanes;
    for (const Slot& slot : slots_) {
        if (!slot.by.chains) continue;
        Values behind(&chains[slot.chain], &chains[slot.chain] + slot.values);
        behind[0] = widened(slot, behind[0]);
        join(slot, &all[slot.lane], behind, true);
    }
    return all;
}

Values Reducer::merged(const Values& a, const Values& b) {
    Values all = a;
    for (const Slot& slot : slots_)
        join(slot, &all[slot.lane], ArrayRef<Value>(b).slice(slot.lane, slot.values), false);
    return all;
}

Values Reducer::folded(std::vector<Values> vectors) {
    for (; vectors.size() > 1; vectors.resize(vectors.size() / 2))
        for (size_t v = 0; v < vectors.size() / 2; ++v)
            vectors[v] = merged(vectors[v], vectors[v + vectors.size() / 2]);
    Values all = vectors[0];
    for (int64_t half = f_.target.width / 2; half > 0; half /= 2) {
        SmallVector<int64_t> first(static_cast<size_t>(half)), second(static_cast<size_t>(half));
        std::iota(first.begin(), first.end(), 0);
        std::iota(second.begin(), second.end(), half);
        Values low, high;
        for (const Value value : all) {
            low.push_back(vector::ShuffleOp::create(f_.b, value, value, first));
            high.push_back(vector::ShuffleOp::create(f_.b, value, value, second));
        }
        all = merged(low, high);
    }
    for (Value& value : all) value = f_.splat(vector::ExtractOp::create(f_.b, value, 0));
    return all;
}

Values Reducer::results(const Values& lanes, Value elements) {
    const Type f64 = f_.b.getF64Type();
    const auto mean_of = [&](Value sum) -> Value {
        return arith::DivFOp::create(f_.b, sum,
                                     f_.splat(arith::SIToFPOp::create(f_.b, f64, elements)));
    };
    Values results;
    for (const Slot& slot : slots_) {
        if (slot.by.squares) continue;  // of the slot before it
        Value result = lanes[slot.lane];
        switch (reductions_[slot.reduction].finish) {
            case Finish::value: break;
            case Finish::place: result = lanes[slot.lane + 1]; break;
            case Finish::mean: result = mean_of(result); break;
            case Finish::variance: {
                const Value mean = mean_of(result), zero = constant(f64, 0);
                result = arith::SubFOp::create(f_.b, mean_of(lanes[slot.lane + 1]),
                                               arith::MulFOp::create(f_.b, mean, mean));
                const Value below = arith::CmpFOp::create(f_.b, FCmp::OLT, result, zero);
                result = arith::SelectOp::create(f_.b, below, zero, result);
            }
        }
        if (slot.by.wide)
            result = arith::TruncFOp::create(f_.b, f_.scalars.vector_of(f_.b.getF32Type()), result);
        results.push_back(result);
    }
    return results;
}

}  // namespace megjit::mlir_backend
