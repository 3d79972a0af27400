#include "codegen/loops/team.h"

namespace megjit::codegen::loops {
namespace {

constexpr int64_t kMaxStates = 2;  // states of one reduction: sum and squares of a variance

// A state takes one word in the memory of blocks, or two if it has 64 bits.
int64_t words_of(Kind kind) { return bytes_of(kind) / 4; }

}  // namespace

Team::Team(Frame& frame) : f_(frame), b_(frame.b), plan_(*frame.target.gpu) {
    const bool is_columns = plan_.cover == Cover::columns;
    thread_ = b_.where(Where::thread);
    const Value stride = b_.index(is_columns ? plan_.slots() : plan_.team);
    const Value low = b_.mod(thread_, stride), high = b_.div(thread_, stride);
    lane_ = is_columns ? high : low;
    slot_ = is_columns ? low : high;
    scratch_slots_ = is_columns ? plan_.threads : kWarp;
    if (!is_warp()) scratch_ = b_.room({Kind::i64}, kMaxStates * scratch_slots_, true);
}

Values Team::merged(Reducer& reducer, const Values& total) {
    if (is_warp()) return over_warp(reducer, total);
    return plan_.cover == Cover::columns ? over_columns(reducer, total)
                                         : over_block(reducer, total);
}

Values Team::over_warp(Reducer& reducer, Values total) {
    for (int mask = 1; mask < kWarp; mask *= 2) {
        Values theirs;
        for (const Value state : total) theirs.push_back(from_thread(state, mask));
        const Value number = b_.mod(b_.div(thread_, b_.index(mask)), b_.index(2));
        const Value is_second = b_.less(b_.index(0), number);
        total = reducer.merged(select(is_second, theirs, total), select(is_second, total, theirs));
    }
    return total;
}

Values Team::over_block(Reducer& reducer, const Values& total) {
    const Value warps = b_.index(kWarp);
    const Value lane = b_.mod(thread_, warps), warp = b_.div(thread_, warps);
    const Values of_warp = over_warp(reducer, total);
    b_.branch(b_.equal(lane, b_.index(0)), [&] { put(of_warp, warp); });
    b_.barrier(false);
    // Lanes without a warp merge a neutral value.
    const Values parts = select(b_.less(lane, b_.index(plan_.threads / kWarp)), get(of_warp, lane),
                                reducer.start_lanes());
    b_.barrier(false);  // before the next reduction writes
    return over_warp(reducer, parts);
}

// Thread t holds a part of column t % slots. The second half of the threads gives its parts to the
// first one, and so on.
Values Team::over_columns(Reducer& reducer, Values total) {
    put(total, thread_);
    for (int64_t half = plan_.threads / 2; half >= plan_.slots(); half /= 2) {
        b_.barrier(false);
        total = b_.choose(b_.less(thread_, b_.index(half)), [&] {
            const Values both = reducer.merged(total, get(total, b_.add(thread_, b_.index(half))));
            put(both, thread_);
            return both;
        }, [&] { return total; });
    }
    b_.barrier(false);
    total = get(total, slot_);
    b_.barrier(false);  // before the next reduction writes
    return total;
}

Value Team::from_thread(Value state, int mask) {
    const Kind kind = b_.type_of(state).kind;
    if (bytes_of(kind) == 4) return b_.bits(kind, b_.from_thread(b_.bits(Kind::i32, state), mask));
    const Value word = b_.bits(Kind::i64, state), shift = b_.constant({Kind::i64}, 32);
    const auto half = [&](Value of) {
        const Value theirs = b_.from_thread(b_.convert(Kind::i32, of), mask);
        return b_.both(b_.convert(Kind::i64, theirs), b_.constant({Kind::i64}, 0xFFFFFFFF));
    };
    const Value high = half(b_.compute(ScalarOp::shr_logical, {word, shift}));
    return b_.bits(kind, b_.any(half(word), b_.compute(ScalarOp::shl, {high, shift})));
}

Value Team::to_word(Value state) {
    if (bytes_of(b_.type_of(state).kind) == 8) return b_.bits(Kind::i64, state);
    return b_.convert(Kind::i64, b_.bits(Kind::i32, state));
}
Value Team::of_word(Value word, Kind kind) {
    return bytes_of(kind) == 8 ? b_.bits(kind, word) : b_.bits(kind, b_.convert(Kind::i32, word));
}

Value Team::place_in_scratch(size_t state, Value index) {
    return b_.at(scratch_, b_.add(index, b_.index(static_cast<int64_t>(state) * scratch_slots_)));
}

void Team::put(const Values& states, Value index) {
    for (size_t s = 0; s < states.size(); ++s)
        b_.store(place_in_scratch(s, index), to_word(states[s]), true);
}

Values Team::get(const Values& like, Value index) {
    Values states;
    for (size_t s = 0; s < like.size(); ++s)
        states.push_back(
            of_word(b_.load(place_in_scratch(s, index), 1, true), b_.type_of(like[s]).kind));
    return states;
}

Values Team::select(Value condition, const Values& a, const Values& b) {
    Values chosen;
    for (size_t s = 0; s < a.size(); ++s) chosen.push_back(b_.select(condition, a[s], b[s]));
    return chosen;
}

// Returns where a part is in memory: the rows of a grid's block are ordered part after part, slot
// after slot, word after word.
Value Team::part_of(Value block, Value part, int64_t first, int64_t words) {
    const Value number = b_.add(b_.mul(block, b_.index(plan_.parts)), part);
    const Value row = b_.add(b_.mul(number, b_.index(plan_.slots())), slot_);
    return b_.at(f_.parts, b_.add(b_.mul(row, b_.index(words)), b_.index(first)));
}

void Team::leave(const Values& total, Value block, int64_t first, int64_t words) {
    Value to = part_of(block, b_.where(Where::part), first, words);
    for (const Value state : total) {
        Value word = to_word(state);
        for (int64_t w = 0; w < words_of(b_.type_of(state).kind); ++w) {
            b_.store(to, b_.convert(Kind::i32, word), false);
            to = b_.at(to, b_.index(1));
            if (w == 0 && words_of(b_.type_of(state).kind) == 2)
                word = b_.compute(ScalarOp::shr_logical, {word, b_.constant({Kind::i64}, 32)});
        }
    }
}

Value is_last_part(Frame& frame, Value ticket) {
    Builder& b = frame.b;
    const Value flag = b.room({Kind::i32}, 1, true), one = b.constant({Kind::i32}, 1);
    b.publish();
    b.barrier(false);
    b.branch(b.equal(b.where(Where::thread), b.index(0)), [&] {
        const auto last = static_cast<uint64_t>(frame.target.gpu->parts - 1);
        const Value is_last = b.equal(b.count(ticket), b.constant({Kind::i32}, last));
        b.branch(is_last, [&] { b.store(ticket, b.constant({Kind::i32}, 0), false); });
        b.store(flag, b.convert(Kind::i32, is_last), true);
    });
    b.barrier(false);
    b.publish();
    return b.equal(b.load(flag, 1, true), one);
}

Values Team::all_parts(Reducer& reducer, const Values& like, Value block, int64_t first,
                       int64_t words) {
    const auto read = [&](Value part) {
        Value from = part_of(block, part, first, words);
        const auto next = [&] {
            const Value word = b_.load_of_others(from);
            from = b_.at(from, b_.index(1));
            return word;
        };
        Values states;
        for (const Value state : like) {
            const Kind kind = b_.type_of(state).kind;
            const Value low = next();
            if (words_of(kind) == 1) {
                states.push_back(b_.bits(kind, low));
                continue;
            }
            const Value high = b_.convert(Kind::i64, next());
            states.push_back(b_.bits(
                kind,
                b_.any(b_.both(b_.convert(Kind::i64, low), b_.constant({Kind::i64}, 0xFFFFFFFF)),
                       b_.compute(ScalarOp::shl, {high, b_.constant({Kind::i64}, 32)}))));
        }
        return states;
    };
    return b_.loop(
        b_.index(1), b_.index(plan_.parts), 1, read(b_.index(0)),
        [&](Value part, const Values& state) { return reducer.merged(state, read(part)); });
}

}  // namespace megjit::codegen::loops
