// Rows, lanes over the last axis: a unit is one index of the kept axes. Values of a row are vectors
// whose lanes are all alike.
//
// The lanes of a row (codegen/row_plan.h) are several vectors where the CPU's are narrower. If its
// body is short, a group of elements, with a chain in each lane, is written out as a whole; else it
// is a loop over whole pieces, and one piece for the rest. (A long body is written once, and
// branches where it reads and writes.)
#include <algorithm>

#include "codegen/loops/reducer.h"

namespace megjit::codegen::loops {
namespace {

// A value of elements that one walk stores in an output, and that a later walk reads there instead
// of computing it again; the later walk stores that output anyway.
struct Kept {
    size_t maker = 0, taker = 0;  // numbers of the two walks
    int value = -1;  // -1: there is none
    size_t output = 0;
    std::vector<int> elements = {};  // elements that the taker still computes
};

// The output may lie on an input, for the taker reads no element of an input.
Kept kept_value(const KernelIR& kernel, const RowPlan& plan, int worth_keeping) {
    size_t last = plan.walks.size();
    while (last-- > 1 && plan.walks[last].outputs.empty()) {}
    if (last == 0 || last >= plan.walks.size()) return {};
    const RowWalk &maker = plan.walks[last - 1], &taker = plan.walks[last];
    if (!taker.reductions.empty() || !maker.outputs.empty()) return {};
    Kept kept{.maker = last - 1, .taker = last};
    for (const int id : taker.elements)
        if (kernel.program[id].type == ScalarType::f32 &&
            std::ranges::find(maker.elements, id) != maker.elements.end())
            kept.value = id;
    const auto fits = [&](size_t k) {
        return kernel.outputs[k].dtype == DType::f32 &&
               kernel.outputs[k].inner == Inner::contiguous;
    };
    const auto output = std::ranges::find_if(taker.outputs, fits);
    if (kept.value < 0 || output == taker.outputs.end()) return {};
    kept.output = *output;
    std::vector<bool> needed(static_cast<size_t>(kernel.program.size()));
    for (const size_t k : taker.outputs) needed[static_cast<size_t>(kernel.results[k])] = true;
    for (size_t n = taker.elements.size(); n-- > 0;) {
        const int id = taker.elements[n];
        if (!needed[static_cast<size_t>(id)] || id == kept.value) continue;
        const runtime::ScalarInst& inst = kernel.program[id];
        if (inst.op == ScalarOp::input) return {};
        kept.elements.insert(kept.elements.begin(), id);
        for (int k = 0; k < runtime::arity_of(inst.op); ++k)
            needed[static_cast<size_t>(inst.args[k])] = true;
    }
    const auto saved = static_cast<int>(taker.elements.size() - kept.elements.size());
    return saved < worth_keeping ? Kept{} : kept;
}

class RowWriter {
public:
    explicit RowWriter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          plan_(row_plan_of(frame.kernel)),
          kept_(kept_value(frame.kernel, plan_, frame.target.schedule.worth_keeping)),
          vectors_(static_cast<size_t>(plan_.lanes / frame.width)) {}

    void write() {
        for_units(f_, kept_axes(f_),
                  [&](Value, Value, const Values& bases) { write_row(f_.gathered(bases)); });
    }

private:
    const Schedule& schedule() const { return f_.target.schedule; }

    void write_row(const Values& bases) {
        values_.assign(static_cast<size_t>(f_.kernel.program.size()), Value());
        reduced_.assign(f_.kernel.reductions.size(), Value());
        for (const RowWalk& walk : plan_.walks) {
            f_.evaluate_row(walk, bases, {b_.index(0)}, reduced_, values_);
            if (!walk.walks()) continue;
            if (walk.reductions.empty()) write_stores(walk, bases);
            else write_reductions(walk, bases);
        }
        for (const size_t k : plan_.outputs) f_.store_lane0(k, bases, values_);
    }

    bool takes_kept(const RowWalk& walk) const {
        return kept_.value >= 0 && &walk == &plan_.walks[kept_.taker];
    }
    const std::vector<int>& elements_of(const RowWalk& walk) const {
        return takes_kept(walk) ? kept_.elements : walk.elements;
    }

    Values write_piece(const RowWalk& walk, const Frame::Run& run, const Piece& piece) {
        Values values = values_;
        if (takes_kept(walk))
            values[static_cast<size_t>(kept_.value)] = f_.stored(kept_.output, run.bases, piece);
        f_.evaluate(elements_of(walk), run.bases, piece, values);
        f_.store(walk.outputs, run.bases, piece, values);
        if (kept_.value >= 0 && &walk == &plan_.walks[kept_.maker]) {
            Values own = values;
            own[static_cast<size_t>(f_.kernel.results[kept_.output])] =
                values[static_cast<size_t>(kept_.value)];
            f_.store(std::span(&kept_.output, 1), run.bases, piece, own);
        }
        return values;
    }

    void write_stores(const RowWalk& walk, const Values& bases) {
        const int64_t width = f_.width;
        f_.for_runs(bases, {}, [&](const Frame::Run& run, const Values&) {
            Value rest = b_.index(0);
            if (schedule().is_short(elements_of(walk).size())) {
                const int64_t at_once = schedule().vectors_at_once;
                rest = whole(run.length, at_once * width);
                b_.loop(b_.index(0), rest, at_once * width, {}, [&](Value at, const Values&) {
                    for (int64_t v = 0; v < at_once; ++v)
                        write_piece(walk, run, {b_.add(at, b_.index(v * width))});
                    return Values();
                });
            }
            return b_.loop(rest, run.length, width, {}, [&](Value at, const Values&) {
                write_piece(walk, run, f_.either(at, b_.sub(run.length, at)));
                return Values();
            });
        });
    }

    // Reduces; the lanes of all accumulators are ordered vector after vector.
    void write_reductions(const RowWalk& walk, const Values& bases) {
        Reducer reducer(f_, walk.reductions);
        Values start;
        for (size_t v = 0; v < vectors_; ++v) append(start, reducer.start_lanes());
        const Values lanes =
            f_.for_runs(bases, start, [&](const Frame::Run& run, const Values& state) {
            const int64_t group = kChain * plan_.lanes;
            const auto by_loop = [&](Value at, const Values& own) {
                const Value end = b_.smaller(run.length, b_.add(at, b_.index(group)));
                return write_group_by_loop(walk, reducer, run, at, end, own);
            };
            if (!schedule().is_short(walk.elements.size()))
                return b_.loop(b_.index(0), run.length, group, state, by_loop);
            const Value rest = whole(run.length, group);
            const Values after =
                b_.loop(b_.index(0), rest, group, state, [&](Value at, const Values& own) {
                return write_group(walk, reducer, run, at, own);
            });
            return b_.choose(b_.less(rest, run.length), [&] { return by_loop(rest, after); },
                             [&] { return after; });
        });
        const Values results = reducer.results(reducer.folded(split(lanes)), f_.row_elements());
        for (size_t r = 0; r < results.size(); ++r)
            reduced_[static_cast<size_t>(walk.reductions[r].reduction)] = results[r];
    }

    // Walks a whole group from `first` on.
    Values write_group(const RowWalk& walk, Reducer& reducer, const Frame::Run& run, Value first,
                       const Values& state) {
        std::vector<Values> lanes = split(state);
        std::vector<Values> chains(vectors_, reducer.start_chains());
        for (int64_t k = 0; k < kChain; ++k)
            for (size_t v = 0; v < vectors_; ++v) {
                const Piece piece{b_.add(first, b_.index(k * plan_.lanes + offset_of(v)))};
                take(walk, reducer, run, piece, chains[v], lanes[v]);
            }
        return joined(reducer, lanes, chains);
    }

    // Chains and lanes of all vectors, as one list and separately.
    struct State {
        std::vector<Values> chains, lanes;
    };
    State apart(const Reducer& reducer, const Values& all) const {
        const auto middle = all.begin() + static_cast<ptrdiff_t>(vectors_ * reducer.chain_values());
        return {split(Values(all.begin(), middle)), split(Values(middle, all.end()))};
    }
    static Values together(const State& state) {
        Values all;
        for (const auto* part : {&state.chains, &state.lanes})
            for (const Values& own : *part) append(all, own);
        return all;
    }

    // Walks elements first..end of one group.
    Values write_group_by_loop(const RowWalk& walk, Reducer& reducer, const Frame::Run& run,
                               Value first, Value end, const Values& lanes) {
        const bool is_once = schedule().is_long(walk.elements.size());
        Values state =
            together({std::vector<Values>(vectors_, reducer.start_chains()), split(lanes)});
        const Value rest = is_once ? end : b_.add(first, whole(b_.sub(end, first), plan_.lanes));
        state = b_.loop(first, rest, plan_.lanes, state, [&](Value at, const Values& own) {
            return take_all(walk, reducer, run, at, is_once ? end : Value(), own);
        });
        if (!is_once)
            state = b_.choose(b_.less(rest, end), [&] {
                return take_all(walk, reducer, run, rest, end, state);
            }, [&] { return state; });
        const State all = apart(reducer, state);
        return joined(reducer, all.lanes, all.chains);
    }

    // Takes one element for each lane, from `at` on; only elements before `end` if that is given.
    Values take_all(const RowWalk& walk, Reducer& reducer, const Frame::Run& run, Value at,
                    Value end, const Values& state) {
        State all = apart(reducer, state);
        for (size_t v = 0; v < vectors_; ++v) {
            const Value from = b_.add(at, b_.index(offset_of(v)));
            if (!end) take(walk, reducer, run, {from}, all.chains[v], all.lanes[v]);
            else take_before(walk, reducer, run, from, v > 0, end, all.chains[v], all.lanes[v]);
        }
        return together(all);
    }

    void take(const RowWalk& walk, Reducer& reducer, const Frame::Run& run, const Piece& piece,
              Values& chains, Values& lanes) {
        const Values values = write_piece(walk, run, piece);
        const Value mask = f_.mask_of(piece);
        Value place;
        if (reducer.needs_places())
            place = b_.add(f_.splat(f_.i32_of(b_.add(run.place, piece.at))),
                           b_.lanes(Kind::i32, f_.width));
        reducer.take(chains, lanes, values, mask, place);
    }

    // Takes the elements from `at` on, a vector of them or those before `end`; there may be none.
    void take_before(const RowWalk& walk, Reducer& reducer, const Frame::Run& run, Value at,
                     bool may_be_none, Value end, Values& chains, Values& lanes) {
        const auto take_them = [&] {
            const Value ahead = b_.sub(end, at);
            const Piece piece = schedule().is_long(walk.elements.size())
                                    ? f_.either(at, ahead)
                                    : f_.partial(at, b_.smaller(ahead, b_.index(f_.width)));
            take(walk, reducer, run, piece, chains, lanes);
            Values all = chains;
            append(all, lanes);
            return all;
        };
        if (!may_be_none) return void(take_them());
        Values before = chains;
        append(before, lanes);
        const Values after = b_.choose(b_.less(at, end), take_them, [&] { return before; });
        const auto middle = after.begin() + static_cast<ptrdiff_t>(reducer.chain_values());
        chains = Values(after.begin(), middle);
        lanes = Values(middle, after.end());
    }

    Values joined(Reducer& reducer, const std::vector<Values>& lanes,
                  const std::vector<Values>& chains) {
        Values all;
        for (size_t v = 0; v < vectors_; ++v) append(all, reducer.with_chains(lanes[v], chains[v]));
        return all;
    }

    std::vector<Values> split(const Values& all) const {
        const size_t size = all.size() / vectors_;
        std::vector<Values> parts;
        for (size_t v = 0; v < vectors_; ++v)
            parts.emplace_back(all.begin() + size * v, all.begin() + size * (v + 1));
        return parts;
    }
    int64_t offset_of(size_t v) const { return static_cast<int64_t>(v) * f_.width; }
    Value whole(Value length, int64_t step) {
        return b_.sub(length, b_.mod(length, b_.index(step)));
    }

    Frame& f_;
    Builder& b_;
    const RowPlan plan_;
    const Kept kept_;
    const size_t vectors_;  // vectors that hold the lanes of a row
    Values values_;  // for each instruction: its value for the row, once it is known
    Values reduced_;  // for each reduction: its result, once it is known
};

}  // namespace

void write_rows(Frame& frame) { RowWriter(frame).write(); }

}  // namespace megjit::codegen::loops
