// What lanes of a warp tell each other.
#include <algorithm>

#include "tests/card/emulator/ptx/decode.h"

namespace megjit::card::ptx {

uint32_t together(Warp& w, const Inst& in, uint32_t mask_row, bool is_barrier) {
    const uint32_t m = mask_of(w, in);
    if (!m) return 0;
    const uint32_t* masks = row<uint32_t>(w, mask_row);
    uint32_t needs = 0, ready = 0;
    each_lane(m, [&](int i) {
        if (!(masks[i] >> i & 1))
            stop(w, 1u << i, Result::illegal_instruction,
                 text("the lane is not in its own mask 0x%08x", masks[i]));
        const bool complete = (masks[i] & ~m & ~w.dead) == 0;
        ready |= static_cast<uint32_t>(complete) << i;
        if (!complete) needs |= masks[i];
    });
    if (ready == m) return m;
    // What other lanes that already wait at such a barrier, elsewhere, have reached counts too.
    if (is_barrier) {
        uint32_t here = m;
        for (const Group& group : w.groups)
            if (group.wait == Group::Wait::warp && group.barrier) here |= group.mask;
        if ((needs & ~here & ~w.dead) == 0) {
            for (Group& group : w.groups)
                if (group.wait == Group::Wait::warp && group.barrier) {
                    group.wait = Group::Wait::none;
                    ++group.ip;
                }
            w.limit = nullptr;  // they may be lower
            return m;
        }
    }
    const Group waiting = {&in, m & ~ready, Group::Wait::warp, static_cast<uint8_t>(is_barrier),
                           needs};
    park(w, waiting);
    // Lanes that were parked here before may be complete with these.
    w.limit = nullptr;
    return ready;
}

namespace {

enum class Shuffle : uint8_t { up, down, bfly, idx };

void shuffle(Warp& w, const Inst& in) {
    const uint32_t go = together(w, in, in.e);
    if (!go) return;
    const uint32_t *a = row<uint32_t>(w, in.a), *b = row<uint32_t>(w, in.b),
                   *c = row<uint32_t>(w, in.c);
    uint32_t values[kLanes], valid = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        const uint32_t segment = c[lane] >> 8 & 31, clamp = c[lane] & 31, by = b[lane] & 31;
        const auto own = static_cast<int>(lane);
        const int highest = static_cast<int>((lane & segment) | (clamp & ~segment));
        const int lowest = static_cast<int>(lane & segment);
        int from = own;
        bool inside = false;
        switch (static_cast<Shuffle>(in.mode)) {
            case Shuffle::up:
                from = own - static_cast<int>(by);
                inside = from >= highest;
                break;
            case Shuffle::down:
                from = own + static_cast<int>(by);
                inside = from <= highest;
                break;
            case Shuffle::bfly:
                from = own ^ static_cast<int>(by);
                inside = from <= highest;
                break;
            case Shuffle::idx:
                from = lowest | static_cast<int>(by & ~segment);
                inside = from <= highest;
                break;
        }
        values[lane] = a[inside ? from : own];
        valid |= static_cast<uint32_t>(inside) << lane;
    }
    uint32_t* to = row<uint32_t>(w, in.d);
    each_lane(go, [&](int i) { to[i] = values[i]; });
    if (in.flags) set_predicate(w, in.target, valid, go);
}
// The predicate of "%d|%p", where there is one.
bool decode_second(Decoder& d, const Operand& to, Inst& in) {
    if (to.second.empty()) return false;
    Operand second = to;
    second.name = to.second;
    in.target = d.dest_predicate(second);
    return true;
}
void decode_shuffle(Decoder& d, const Statement& s, Inst& in) {
    if (!s.has("sync")) d.refuse("shfl without .sync is of cards before sm_70");
    in.run = &shuffle;
    in.mode = static_cast<uint8_t>(s.has("up")     ? Shuffle::up
                                   : s.has("down") ? Shuffle::down
                                   : s.has("bfly") ? Shuffle::bfly
                                                   : Shuffle::idx);
    const Operand& to = s.operands.at(0);
    in.d = d.dest(to, 4);
    in.flags = decode_second(d, to, in);
    in.a = d.source(s.operands.at(1), 4);
    in.b = d.source(s.operands.at(2), Type::u32);
    in.c = d.source(s.operands.at(3), Type::u32);
    in.e = d.source(s.operands.at(4), Type::u32);
}

// Lanes of `go` that share a mask, one set after the other.
template <class F>
void each_set(const Warp& w, const Inst& in, uint32_t go, F f) {
    const uint32_t* masks = row<uint32_t>(w, in.e);
    while (go) {
        const uint32_t mask = masks[first_lane(go)];
        uint32_t set = 0;
        each_lane(go, [&](int i) { set |= static_cast<uint32_t>(masks[i] == mask) << i; });
        f(set);
        go &= ~set;
    }
}

enum class Vote : uint8_t { all, any, uni, ballot };
void take_vote(Warp& w, const Inst& in) {
    const uint32_t go = together(w, in, in.e);
    const uint32_t p = predicate(w, in.a) ^ (in.flags ? kAll : 0);
    each_set(w, in, go, [&](uint32_t set) {
        const uint32_t yes = p & set;
        switch (static_cast<Vote>(in.mode)) {
            case Vote::ballot:
                each_lane(set, [&](int i) { row<uint32_t>(w, in.d)[i] = yes; });
                break;
            case Vote::all: set_predicate(w, in.d, yes == set ? kAll : 0, set); break;
            case Vote::any: set_predicate(w, in.d, yes ? kAll : 0, set); break;
            case Vote::uni: set_predicate(w, in.d, yes == set || !yes ? kAll : 0, set); break;
        }
    });
}
void decode_vote(Decoder& d, const Statement& s, Inst& in) {
    if (!s.has("sync")) d.refuse("vote without .sync is of cards before sm_70");
    in.run = &take_vote;
    in.mode = static_cast<uint8_t>(s.has("ballot") ? Vote::ballot
                                   : s.has("all")  ? Vote::all
                                   : s.has("any")  ? Vote::any
                                                   : Vote::uni);
    in.d = s.has("ballot") ? d.dest(s.operands.at(0), 4) : d.dest_predicate(s.operands.at(0));
    in.a = d.source(s.operands.at(1), Type::pred);
    in.flags = s.operands[1].negated;
    in.e = d.source(s.operands.at(2), Type::u32);
}

template <class T>
void match(Warp& w, const Inst& in) {
    const uint32_t go = together(w, in, in.e);
    const T* a = row<T>(w, in.a);
    each_set(w, in, go, [&](uint32_t set) {
        each_lane(set, [&](int i) {
            uint32_t same = 0;
            each_lane(set, [&](int k) { same |= static_cast<uint32_t>(a[k] == a[i]) << k; });
            if (in.mode) {  // all
                row<uint32_t>(w, in.d)[i] = same == set ? set : 0;
                if (in.flags) set_predicate(w, in.target, same == set ? kAll : 0, 1u << i);
            } else row<uint32_t>(w, in.d)[i] = same;
        });
    });
}
void decode_match(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    in.run = bytes_of(type) == 8 ? &match<uint64_t> : &match<uint32_t>;
    in.mode = s.has("all");
    const Operand& to = s.operands.at(0);
    in.d = d.dest(to, 4);
    in.flags = decode_second(d, to, in);
    in.a = d.source(s.operands.at(1), type);
    in.e = d.source(s.operands.at(2), Type::u32);
}

enum class Reduce : uint8_t { add, minimum, maximum, conjunction, disjunction, exclusive };
template <class T>
void reduce(Warp& w, const Inst& in) {
    const uint32_t go = together(w, in, in.e);
    const T* a = row<T>(w, in.a);
    each_set(w, in, go, [&](uint32_t set) {
        T sum = a[first_lane(set)];
        each_lane(set & (set - 1), [&](int i) {
            switch (static_cast<Reduce>(in.mode)) {
                case Reduce::add: sum += a[i]; break;
                case Reduce::minimum: sum = std::min(sum, a[i]); break;
                case Reduce::maximum: sum = std::max(sum, a[i]); break;
                case Reduce::conjunction: sum &= a[i]; break;
                case Reduce::disjunction: sum |= a[i]; break;
                case Reduce::exclusive: sum ^= a[i]; break;
            }
        });
        each_lane(set, [&](int i) { row<T>(w, in.d)[i] = sum; });
    });
}
void decode_redux(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    if (is_float(type)) d.refuse("not for this type");
    in.run = is_signed(type) ? &reduce<int32_t> : &reduce<uint32_t>;
    in.mode = static_cast<uint8_t>(s.has("add")   ? Reduce::add
                                   : s.has("min") ? Reduce::minimum
                                   : s.has("max") ? Reduce::maximum
                                   : s.has("and") ? Reduce::conjunction
                                   : s.has("or")  ? Reduce::disjunction
                                                  : Reduce::exclusive);
    in.d = d.dest(s.operands.at(0), 4);
    in.a = d.source(s.operands.at(1), type);
    in.e = d.source(s.operands.at(2), Type::u32);
}

}  // namespace

void warp_barrier(Decoder& d, const Statement& s, Inst& in) {
    in.run = [](Warp& w, const Inst& in) { together(w, in, in.e, true); };
    in.e = d.source(s.operands.at(0), Type::u32);
}

void add_warp_operations(Operations& ops) {
    ops["shfl"] = &decode_shuffle;
    ops["vote"] = &decode_vote;
    ops["match"] = &decode_match;
    ops["redux"] = &decode_redux;
    ops["activemask"] = [](Decoder& d, const Statement& s, Inst& in) {
        in.run = [](Warp& w, const Inst& in) {
            const uint32_t active = w.active;
            lanes<uint32_t>(w, in, [=](int) { return active; });
        };
        in.d = d.dest(s.operands.at(0), 4);
    };
    ops["elect"] = [](Decoder& d, const Statement& s, Inst& in) {
        in.run = [](Warp& w, const Inst& in) {
            const uint32_t go = together(w, in, in.e);
            each_set(w, in, go, [&](uint32_t set) {
                const auto leader = static_cast<uint32_t>(first_lane(set));
                each_lane(set, [&](int i) { row<uint32_t>(w, in.d)[i] = leader; });
                set_predicate(w, in.target, 1u << leader, set);
            });
        };
        in.d = d.dest(s.operands.at(0), 4);
        if (!decode_second(d, s.operands[0], in)) d.refuse("elect names a predicate, too");
        in.e = d.source(s.operands.at(1), Type::u32);
    };
}

}  // namespace megjit::card::ptx
