#include "backends/mlir/reduce.h"

#include <limits>
#include <numeric>

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace megjit::mlir_backend {

using namespace mlir;
using codegen::Reduce;
using runtime::ScalarType;
using FCmp = arith::CmpFPredicate;
using ICmp = arith::CmpIPredicate;

namespace {

bool is_place(Reduce kind) { return kind == Reduce::argmax || kind == Reduce::argmin; }
bool wants_larger(Reduce kind) { return kind == Reduce::max || kind == Reduce::argmax; }
Type element_of(Value lanes) { return getElementTypeOrSelf(lanes.getType()); }

}  // namespace

Reducer::Reducer(Frame& frame, ArrayRef<int> reductions)
    : f_(frame), reductions_(reductions.begin(), reductions.end()) {
    first_.push_back(0);
    for (size_t r = 0; r < reductions_.size(); ++r) {
        const Reduce kind = reduction(r).kind;
        first_.push_back(first_.back() + (kind == Reduce::variance || is_place(kind) ? 2 : 1));
        loses_digits_ |= is_wide(r);
        counts_ |= kind == Reduce::variance;
        needs_places_ |= is_place(kind);
    }
}

const codegen::Reduction& Reducer::reduction(size_t r) const {
    return f_.kernel.reductions[static_cast<size_t>(reductions_[r])];
}

bool Reducer::is_wide(size_t r) const {
    const Reduce kind = reduction(r).kind;
    return is_float(r) && (kind == Reduce::sum || kind == Reduce::prod || kind == Reduce::mean ||
                           kind == Reduce::variance);
}

Value Reducer::constant(Type type, double value) {
    const Type element = getElementTypeOrSelf(type);
    const Attribute number =
        isa<FloatType>(element)
            ? Attribute(f_.b.getFloatAttr(element, value))
            : Attribute(f_.b.getIntegerAttr(element, static_cast<int64_t>(value)));
    return arith::ConstantOp::create(f_.b, SplatElementsAttr::get(cast<ShapedType>(type), number));
}

Value Reducer::widened(Value lanes) {
    return arith::ExtFOp::create(f_.b, f_.scalars.vector_of(f_.b.getF64Type()), lanes,
                                 arith::FastMathFlagsAttr());
}

// Truths are accumulated as 0 and 1.
Values Reducer::start() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const VectorType f32 = f_.scalars.vector_of(f_.b.getF32Type()),
                     i32 = f_.scalars.vector_of(f_.b.getI32Type());
    Values part;
    for (size_t r = 0; r < reductions_.size(); ++r) {
        const VectorType type = is_float(r) ? f32 : i32;
        const Reduce kind = reduction(r).kind;
        switch (kind) {
            case Reduce::sum:
            case Reduce::mean: part.push_back(constant(type, 0)); break;
            case Reduce::prod: part.push_back(constant(type, 1)); break;
            case Reduce::variance: part.append({constant(f32, 0), constant(f32, 0)}); break;
            case Reduce::max:
            case Reduce::min:
            case Reduce::argmax:
            case Reduce::argmin: {
                const bool max = wants_larger(kind);
                const double worst = is_float(r)                    ? (max ? -kInfinity : kInfinity)
                                     : type_of(r) == ScalarType::b1 ? (max ? 0 : 1)
                                                                    : (max ? INT32_MIN : INT32_MAX);
                part.push_back(constant(type, worst));
                // Where nothing is better than that, the first element is as good as it.
                if (is_place(kind)) part.push_back(constant(i32, 0));
                break;
            }
        }
    }
    return part;
}

Value Reducer::compare(bool larger, Value a, Value b) {
    if (isa<FloatType>(element_of(a)))
        return arith::CmpFOp::create(f_.b, larger ? FCmp::OGT : FCmp::OLT, a, b);
    return arith::CmpIOp::create(f_.b, larger ? ICmp::sgt : ICmp::slt, a, b);
}

Value Reducer::is_nan(Value a) { return arith::CmpFOp::create(f_.b, FCmp::UNO, a, a); }

Value Reducer::fold_in(size_t r, Value a, Value x) {
    const bool floats = isa<FloatType>(element_of(a));
    const Reduce kind = reduction(r).kind;
    switch (kind) {
        case Reduce::prod:
            return floats ? Value(arith::MulFOp::create(f_.b, a, x))
                          : Value(arith::MulIOp::create(f_.b, a, x));
        case Reduce::max:
        case Reduce::min: {
            // What is better replaces `a`, unless that is NaN; and NaN replaces all.
            const Value best =
                arith::SelectOp::create(f_.b, compare(kind == Reduce::max, x, a), x, a);
            return floats ? Value(arith::SelectOp::create(f_.b, is_nan(x), x, best)) : best;
        }
        default:
            return floats ? Value(arith::AddFOp::create(f_.b, a, x))
                          : Value(arith::AddIOp::create(f_.b, a, x));
    }
}

// Of (value, place) pairs the better value, else the smaller place.
Values Reducer::better(size_t r, ArrayRef<Value> a, ArrayRef<Value> c) {
    const auto both = [&](Value x, Value y) -> Value { return arith::AndIOp::create(f_.b, x, y); };
    const auto any = [&](Value x, Value y) -> Value { return arith::OrIOp::create(f_.b, x, y); };
    Value wins = compare(wants_larger(reduction(r).kind), c[0], a[0]), ties;
    if (is_float(r)) {
        ties = any(arith::CmpFOp::create(f_.b, FCmp::OEQ, c[0], a[0]),
                   both(is_nan(c[0]), is_nan(a[0])));
        wins = any(wins, both(is_nan(c[0]), arith::CmpFOp::create(f_.b, FCmp::ORD, a[0], a[0])));
    } else {
        ties = arith::CmpIOp::create(f_.b, ICmp::eq, c[0], a[0]);
    }
    wins = any(wins, both(ties, arith::CmpIOp::create(f_.b, ICmp::slt, c[1], a[1])));
    return {arith::SelectOp::create(f_.b, wins, c[0], a[0]),
            arith::SelectOp::create(f_.b, wins, c[1], a[1])};
}

Values Reducer::step(const Values& part, const Values& values, const Step& step) {
    Values next;
    for (size_t r = 0; r < reductions_.size(); ++r) {
        const Reduce kind = reduction(r).kind;
        const Value* old = &part[first_[r]];
        Value x = values[static_cast<size_t>(reduction(r).arg)];
        if (type_of(r) == ScalarType::b1)
            x = arith::ExtUIOp::create(f_.b, f_.scalars.vector_of(f_.b.getI32Type()), x);
        if (kind == Reduce::variance) {
            const Value away = arith::SubFOp::create(f_.b, x, old[0]);
            const Value mean = math::FmaOp::create(f_.b, away, step.share, old[0]);
            next.append({mean, math::FmaOp::create(f_.b, away, arith::SubFOp::create(f_.b, x, mean),
                                                   old[1])});
        } else if (is_place(kind)) {
            // Places only grow: of equal values the old one stays, and so does the first NaN.
            Value wins = compare(wants_larger(kind), x, old[0]);
            if (is_float(r)) {
                wins = arith::CmpFOp::create(f_.b, wants_larger(kind) ? FCmp::UGT : FCmp::ULT, x,
                                             old[0]);
                wins = arith::AndIOp::create(
                    f_.b, wins, arith::CmpFOp::create(f_.b, FCmp::ORD, old[0], old[0]));
            }
            next.append({arith::SelectOp::create(f_.b, wins, x, old[0]),
                         arith::SelectOp::create(f_.b, wins, step.place, old[1])});
        } else {
            next.push_back(fold_in(r, old[0], x));
        }
    }
    if (step.mask)
        for (size_t s = 0; s < next.size(); ++s)
            next[s] = arith::SelectOp::create(f_.b, step.mask, next[s], part[s]);
    return next;
}

// (mean, sum of squares) of two sets together. An empty one weighs nothing.
void Reducer::chan(Values& out, ArrayRef<Value> a, Value count_a, ArrayRef<Value> c,
                   Value count_c) {
    const auto times = [&](Value x, Value y) -> Value { return arith::MulFOp::create(f_.b, x, y); };
    const auto plus = [&](Value x, Value y) -> Value { return arith::AddFOp::create(f_.b, x, y); };
    const Value all = plus(count_a, count_c);
    const Value some = arith::MaxNumFOp::create(f_.b, all, constant(all.getType(), 1));
    const Value weight = arith::DivFOp::create(f_.b, count_c, some);
    const Value apart = arith::SubFOp::create(f_.b, c[0], a[0]);
    out.push_back(plus(a[0], times(apart, weight)));
    out.push_back(plus(plus(a[1], c[1]), times(times(apart, apart), times(count_a, weight))));
}

void Reducer::merge_one(Values& out, size_t r, const Values& a, Value count_a, const Values& c,
                        Value count_c) {
    const auto of = [&](const Values& all) {
        return ArrayRef<Value>(all).slice(first_[r], first_[r + 1] - first_[r]);
    };
    if (reduction(r).kind == Reduce::variance) chan(out, of(a), count_a, of(c), count_c);
    else if (is_place(reduction(r).kind)) out.append(better(r, of(a), of(c)));
    else out.push_back(fold_in(r, of(a)[0], of(c)[0]));
}

Values Reducer::merge(const Values& a, Value count_a, const Values& c, Value count_c) {
    Values merged;
    for (size_t r = 0; r < reductions_.size(); ++r) merge_one(merged, r, a, count_a, c, count_c);
    return merged;
}

Values Reducer::merge_totals(const Values& a, const Values& c) {
    if (a.empty()) return {};
    Values merged = merge(a, a.back(), c, c.back());
    if (counts_) merged.push_back(arith::AddFOp::create(f_.b, a.back(), c.back()));
    return merged;
}

Values Reducer::start_total() {
    const VectorType f64 = f_.scalars.vector_of(f_.b.getF64Type());
    Values total = start();
    for (size_t r = 0; r < reductions_.size(); ++r)
        for (size_t s = first_[r]; s < first_[r + 1]; ++s)
            if (is_wide(r)) total[s] = constant(f64, reduction(r).kind == Reduce::prod ? 1 : 0);
    if (counts_) total.push_back(constant(f64, 0));
    return total;
}

Values Reducer::absorb(const Values& total, const Values& part, Value count) {
    Values wide = part;
    for (size_t r = 0; r < reductions_.size(); ++r)
        for (size_t s = first_[r]; s < first_[r + 1]; ++s)
            if (is_wide(r)) wide[s] = widened(part[s]);
    if (counts_) wide.push_back(widened(count));
    return merge_totals(total, wide);
}

Values Reducer::fold(Values total) {
    for (int64_t half = f_.target.width / 2; half > 0; half /= 2) {
        SmallVector<int64_t> first(static_cast<size_t>(half)), second(static_cast<size_t>(half));
        std::iota(first.begin(), first.end(), 0);
        std::iota(second.begin(), second.end(), half);
        Values low, high;
        for (const Value state : total) {
            low.push_back(vector::ShuffleOp::create(f_.b, state, state, first));
            high.push_back(vector::ShuffleOp::create(f_.b, state, state, second));
        }
        total = merge_totals(low, high);
    }
    for (Value& state : total) state = f_.splat(vector::ExtractOp::create(f_.b, state, 0));
    return total;
}

Values Reducer::results(const Values& total, Value elements) {
    const VectorType f32 = f_.scalars.vector_of(f_.b.getF32Type());
    const auto divided = [&](Value sum) -> Value {
        return arith::DivFOp::create(
            f_.b, sum, f_.splat(arith::SIToFPOp::create(f_.b, f_.b.getF64Type(), elements)));
    };
    Values results;
    for (size_t r = 0; r < reductions_.size(); ++r) {
        const Reduce kind = reduction(r).kind;
        Value result = total[first_[r] + (kind == Reduce::variance || is_place(kind))];
        if (kind == Reduce::mean || kind == Reduce::variance) result = divided(result);
        if (is_wide(r)) result = arith::TruncFOp::create(f_.b, f32, result);
        if (type_of(r) == ScalarType::b1)
            result = arith::CmpIOp::create(f_.b, ICmp::ne, result, constant(result.getType(), 0));
        results.push_back(result);
    }
    return results;
}

}  // namespace megjit::mlir_backend
