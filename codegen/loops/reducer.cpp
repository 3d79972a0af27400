#include "codegen/loops/reducer.h"

#include <algorithm>

namespace megjit::codegen::loops {

Reducer::Reducer(Frame& frame, std::span<const Reduced> reductions)
    : f_(frame), b_(frame.b), reductions_(reductions.begin(), reductions.end()) {
    for (size_t r = 0; r < reductions_.size(); ++r)
        for (const Accumulator& by : reductions_[r].accumulators) {
            const size_t values = by.has_place() ? 2 : 1;
            slots_.push_back({by, r, lane_values_, chain_values_, values});
            lane_values_ += values;
            if (by.chains) chain_values_ += values;
        }
}

bool Reducer::needs_places() const {
    return std::ranges::any_of(slots_, [](const Slot& slot) { return slot.by.has_place(); });
}

Values Reducer::start(bool lanes) {
    Values values;
    for (const Slot& slot : slots_) {
        if (!lanes && !slot.by.chains) continue;
        const Kind kind = lanes && slot.by.wide ? Kind::f64 : kind_of(slot.by.type);
        values.push_back(b_.number({kind, f_.width}, slot.by.neutral()));
        if (slot.by.has_place()) values.push_back(b_.constant({Kind::i32, f_.width}, 0));
    }
    return values;
}

// A better value replaces `a`, unless that is NaN; and NaN replaces everything. The fence keeps the
// first choice separate, which is one instruction.
Value Reducer::better(bool larger, Value a, Value b) {
    if (!is_float(a)) return larger ? b_.larger(a, b) : b_.smaller(a, b);
    const Value best = b_.select(compare(larger, b, a), b, a);
    return b_.select(is_nan(b), b, b_.fence(best));
}

// Does the second of two (value, place) pairs replace the first?
Value Reducer::wins(bool larger, std::span<const Value> a, std::span<const Value> c,
                    bool is_behind) {
    const auto is_better = [&] { return compare(larger, c[0], a[0]); };
    // Among equal values the first stays.
    if (!is_float(a[0])) {
        if (is_behind) return is_better();
        return b_.any(is_better(), b_.both(b_.equal(c[0], a[0]), b_.less(c[1], a[1])));
    }
    // The first NaN comes before all other values.
    const Value was_number = b_.equal(a[0], a[0]);
    if (is_behind) {  // `better` includes NaN: one comparison
        const Value no_better = larger ? b_.compute(ScalarOp::le, {c[0], a[0]})
                                       : b_.compute(ScalarOp::le, {a[0], c[0]});
        const Value truth = b_.constant(b_.type_of(no_better), 1);
        return b_.both(b_.compute(ScalarOp::bit_xor, {no_better, truth}), was_number);
    }
    const Value was_nan = is_nan(a[0]), nan = is_nan(c[0]);
    const Value ties = b_.any(b_.equal(c[0], a[0]), b_.both(nan, was_nan));
    return b_.any(b_.any(is_better(), b_.both(nan, was_number)),
                  b_.both(ties, b_.less(c[1], a[1])));
}

void Reducer::join(const Slot& slot, std::span<Value> a, std::span<const Value> c, bool is_behind) {
    switch (slot.by.join) {
        case Join::add: a[0] = b_.add(a[0], c[0]); return;
        case Join::mul: a[0] = b_.mul(a[0], c[0]); return;
        case Join::max:
        case Join::min: a[0] = better(slot.by.join == Join::max, a[0], c[0]); return;
        case Join::first_max:
        case Join::first_min: {
            const Value second = wins(slot.by.join == Join::first_max, a.first(2), c, is_behind);
            for (const size_t v : {0, 1}) a[v] = b_.select(second, c[v], a[v]);
        }
    }
}

// The element as an accumulator takes it, into a chain or into a lane.
Value Reducer::taken(const Slot& slot, const Values& values) {
    const Reduced& reduced = reductions_[slot.reduction];
    Value x = values[static_cast<size_t>(reduced.takes[0])];
    if (b_.type_of(x).kind == Kind::b1) x = b_.convert(Kind::i32, x);
    if (!slot.by.chains) x = widened(slot, x);
    return slot.by.squares ? b_.mul(x, x) : x;
}

void Reducer::take(Values& chains, Values& lanes, const Values& values, Value mask, Value place) {
    for (const Slot& slot : slots_) {
        const auto to = slot.by.chains ? std::span(chains).subspan(slot.chain, slot.values)
                                       : std::span(lanes).subspan(slot.lane, slot.values);
        const Values old(to.begin(), to.end());
        const Value behind[] = {taken(slot, values), place};
        if (const std::vector<int>& takes = reductions_[slot.reduction].takes; takes.size() > 1)
            to[0] = b_.compute(ScalarOp::fma,
                               {behind[0], values[static_cast<size_t>(takes[1])], to[0]});
        else join(slot, to, behind, true);
        if (mask)
            for (size_t v = 0; v < slot.values; ++v) to[v] = b_.select(mask, to[v], old[v]);
    }
}

Values Reducer::with_chains(const Values& lanes, const Values& chains) {
    Values all = lanes;
    for (const Slot& slot : slots_) {
        if (!slot.by.chains) continue;
        const auto own = std::span(chains).subspan(slot.chain, slot.values);
        Values behind(own.begin(), own.end());
        behind[0] = widened(slot, behind[0]);
        join(slot, std::span(all).subspan(slot.lane, slot.values), behind, true);
    }
    return all;
}

Values Reducer::merged(const Values& a, const Values& b) {
    Values all = a;
    for (const Slot& slot : slots_)
        join(slot, std::span(all).subspan(slot.lane, slot.values),
             std::span(b).subspan(slot.lane, slot.values), false);
    return all;
}

Values Reducer::folded(std::vector<Values> vectors) {
    for (; vectors.size() > 1; vectors.resize(vectors.size() / 2))
        for (size_t v = 0; v < vectors.size() / 2; ++v)
            vectors[v] = merged(vectors[v], vectors[v + vectors.size() / 2]);
    Values all = vectors[0];
    for (int half = f_.width / 2; half > 0; half /= 2) {
        Values low, high;
        for (const Value value : all) {
            low.push_back(b_.half(value, false));
            high.push_back(b_.half(value, true));
        }
        all = merged(low, high);
    }
    for (Value& value : all) value = f_.splat(value);
    return all;
}

// Booleans count as 0 and 1: among no booleans none is true, and none is false.
Value Reducer::as_result(ScalarType type, Join join, Value value) {
    if (type != ScalarType::b1) return value;
    const Value zero = b_.constant(b_.type_of(value), 0);
    return join == Join::max ? b_.less(zero, value) : b_.compute(ScalarOp::ne, {value, zero});
}

Values Reducer::results(const Values& lanes, Value elements) {
    const auto mean_of = [&](Value sum) {  // computes in f64
        return b_.div(sum, f_.splat(b_.convert(Kind::f64, elements)));
    };
    Values results;
    for (const Slot& slot : slots_) {
        if (slot.by.squares) continue;  // the slot before it has used them
        const Reduced& reduced = reductions_[slot.reduction];
        Value result = lanes[slot.lane];
        switch (reduced.finish) {
            case Finish::value: break;
            case Finish::place: results.push_back(lanes[slot.lane + 1]); continue;
            case Finish::mean: result = mean_of(result); break;
            case Finish::variance: {
                const Value mean = mean_of(result);
                result = b_.sub(mean_of(lanes[slot.lane + 1]), b_.mul(mean, mean));
                const Value zero = b_.number(b_.type_of(result), 0);
                result = b_.select(b_.less(result, zero), zero, result);
            }
        }
        if (slot.by.wide) result = b_.convert(Kind::f32, result);
        const int arg = f_.kernel.reductions[static_cast<size_t>(reduced.reduction)].arg;
        results.push_back(as_result(f_.kernel.program[arg].type, slot.by.join, result));
    }
    return results;
}

}  // namespace megjit::codegen::loops
