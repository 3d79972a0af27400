// Rows, lanes over the last axis: a unit is one index of the kept axes. Values of a row are vectors
// whose lanes are all alike.
//
// The lanes of a row (codegen/row_plan.h) are several vectors where the CPU's are narrower. If its
// body is short, a group of elements, with a chain in each lane, is written out as a whole; else it
// is a loop over some pieces that are computed together, so that the CPU need not wait for the
// results of one.
#include <algorithm>

#include "codegen/loops/kept.h"
#include "codegen/loops/reducer.h"

namespace megjit::codegen::loops {
namespace {

class RowWriter {
public:
    explicit RowWriter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          plan_(row_plan_of(frame.kernel)),
          kept_(kept_value(frame.kernel, plan_, frame.target.schedule.worth_keeping)),
          vectors_(static_cast<size_t>(plan_.lanes / frame.width)) {}

    void write() {
        f_.decide_to_stream();
        if (kept_.value >= 0) {
            room_ = b_.room({Kind::f32, f_.width}, schedule().kept_elements / f_.width);
            fits_ =
                b_.compute(ScalarOp::le, {f_.row_elements(), b_.index(schedule().kept_elements)});
        }
        for_units(f_, kept_axes(f_),
                  [&](Value, Value, const Values& bases) { write_row(f_.gathered(bases)); });
        f_.end_streams();
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

    size_t number_of(const RowWalk& walk) const {
        return static_cast<size_t>(&walk - plan_.walks.data());
    }
    // Counts what the walk computes for each element.
    size_t body_of(const RowWalk& walk) const {
        const Kept::Taker* taker = kept_.taker(number_of(walk));
        return taker && kept_.output >= 0 ? taker->elements.size() : walk.elements.size();
    }

    // Computes and stores pieces of a walk; returns the values of each.
    std::vector<Values> write_pieces(const RowWalk& walk, const Frame::Run& run,
                                     std::span<const Piece> pieces) {
        std::vector<Values> values(pieces.size(), values_);
        const Kept::Taker* const taker = kept_.taker(number_of(walk));
        if (taker) take_kept(run, pieces, values);
        f_.evaluate(taker ? taker->elements : walk.elements, run.bases, pieces, values);
        for (size_t p = 0; p < pieces.size(); ++p)
            f_.store(walk.outputs, run.bases, pieces[p], values[p]);
        if (kept_.value >= 0 && number_of(walk) == kept_.maker) keep(run, pieces, values);
        return values;
    }

    Value& kept_in(Values& values) const { return values[static_cast<size_t>(kept_.value)]; }
    void take_kept(const Frame::Run& run, std::span<const Piece> pieces, std::span<Values> values) {
        const auto load_from = [&](Value row) {
            Values loaded;
            for (const Piece& piece : pieces) loaded.push_back(f_.stored(row, piece));
            return loaded;
        };
        const Values kept = b_.choose(fits_, [&] { return load_from(room_for(run)); }, [&] {
            return kept_.output < 0 ? made_again(run, pieces)
                                    : load_from(f_.base_of_output(run.bases, kept_.output));
        });
        for (size_t p = 0; p < pieces.size(); ++p) kept_in(values[p]) = kept[p];
    }
    Value room_for(const Frame::Run& run) { return b_.at(room_, run.place); }
    Values made_again(const Frame::Run& run, std::span<const Piece> pieces) {
        std::vector<Values> values(pieces.size(), values_);
        f_.evaluate(kept_.made, run.bases, pieces, values);
        Values made;
        for (Values& own : values) made.push_back(kept_in(own));
        return made;
    }
    void keep(const Frame::Run& run, std::span<const Piece> pieces, std::span<Values> values) {
        const auto store_to = [&](Value row) {
            for (size_t p = 0; p < pieces.size(); ++p)
                b_.store(b_.at(row, pieces[p].at), kept_in(values[p]), f_.is_aligned,
                         f_.mask_of(pieces[p]));
            return Values();
        };
        b_.choose(fits_, [&] { return store_to(room_for(run)); }, [&] {
            return kept_.output < 0 ? Values()
                                    : store_to(f_.base_of_output(run.bases, kept_.output));
        });
    }
    std::vector<Piece> whole_pieces(Value from, int count) {
        std::vector<Piece> pieces;
        for (int p = 0; p < count; ++p)
            pieces.push_back({b_.add(from, b_.index(int64_t{p} * f_.width))});
        return pieces;
    }

    void write_stores(const RowWalk& walk, const Values& bases) {
        const int together = schedule().pieces_together(f_.target.registers, body_of(walk));
        const int64_t width = f_.width;
        f_.for_runs(bases, {}, [&](const Frame::Run& run, const Values&) {
            const Value rest = whole(run.length, together * width);
            Value passes = f_.passes_caches(walk.outputs, run.bases, b_.index(0));
            if (passes && kept_.output >= 0) passes = b_.both(passes, fits_);
            b_.loop(b_.index(0), rest, together * width, {}, [&](Value at, const Values&) {
                std::vector<Piece> pieces = whole_pieces(at, together);
                for (Piece& piece : pieces) piece.passes = passes;
                write_pieces(walk, run, pieces);
                return Values();
            });
            return b_.loop(rest, run.length, width, {}, [&](Value at, const Values&) {
                const Piece piece = f_.either(at, b_.sub(run.length, at));
                write_pieces(walk, run, std::span(&piece, 1));
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
            const Value rest = whole(run.length, group);
            const Values after =
                b_.loop(b_.index(0), rest, group, state, [&](Value at, const Values& own) {
                return write_group(walk, reducer, run, at, own);
            });
            return b_.choose(b_.less(rest, run.length), [&] {
                return write_group_by_loop(walk, reducer, run, rest, run.length, after);
            }, [&] { return after; });
        });
        const Values results = reducer.results(reducer.folded(split(lanes)), f_.row_elements());
        for (size_t r = 0; r < results.size(); ++r)
            reduced_[static_cast<size_t>(walk.reductions[r].reduction)] = results[r];
    }

    // Walks a whole group from `first` on: written out if its body is short, else as a loop over
    // pieces that are computed together.
    Values write_group(const RowWalk& walk, Reducer& reducer, const Frame::Run& run, Value first,
                       const Values& state) {
        const size_t body = body_of(walk);
        const int64_t group = kChain * plan_.lanes,
                      step =
                          schedule().pieces_together(f_.target.registers, body) * int64_t{f_.width};
        Values own =
            together({std::vector<Values>(vectors_, reducer.start_chains()), split(state)});
        const auto take_at = [&](Value at, const Values& before) {
            return take_whole(walk, reducer, run, at, before);
        };
        if (schedule().is_short(body))
            for (int64_t n = 0; n < group; n += step)
                own = take_at(b_.add(first, b_.index(n)), own);
        else own = b_.loop(first, b_.add(first, b_.index(group)), step, own, take_at);
        const State all = apart(reducer, own);
        return joined(reducer, all.lanes, all.chains);
    }

    // Takes as many whole pieces as are computed together.
    Values take_whole(const RowWalk& walk, Reducer& reducer, const Frame::Run& run, Value at,
                      const Values& state) {
        State all = apart(reducer, state);
        const std::vector<Piece> pieces =
            whole_pieces(at, schedule().pieces_together(f_.target.registers, body_of(walk)));
        const std::vector<Values> values = write_pieces(walk, run, pieces);
        for (size_t p = 0; p < pieces.size(); ++p)
            take(reducer, run, pieces[p], values[p], all.chains[p % vectors_],
                 all.lanes[p % vectors_]);
        return together(all);
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

    // Walks elements first..end of one group: whole pieces, then one for the rest. (A body that is
    // not short is written once, and branches where it reads and writes.)
    Values write_group_by_loop(const RowWalk& walk, Reducer& reducer, const Frame::Run& run,
                               Value first, Value end, const Values& lanes) {
        const bool is_once = !schedule().is_short(body_of(walk));
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
            if (!end) take_piece(walk, reducer, run, {from}, all.chains[v], all.lanes[v]);
            else take_before(walk, reducer, run, from, v > 0, end, all.chains[v], all.lanes[v]);
        }
        return together(all);
    }

    void take_piece(const RowWalk& walk, Reducer& reducer, const Frame::Run& run,
                    const Piece& piece, Values& chains, Values& lanes) {
        const Values values = write_pieces(walk, run, std::span(&piece, 1))[0];
        take(reducer, run, piece, values, chains, lanes);
    }

    void take(Reducer& reducer, const Frame::Run& run, const Piece& piece, const Values& values,
              Values& chains, Values& lanes) {
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
            const Piece piece = schedule().is_short(body_of(walk))
                                    ? f_.partial(at, b_.smaller(ahead, b_.index(f_.width)))
                                    : f_.either(at, ahead);
            take_piece(walk, reducer, run, piece, chains, lanes);
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
    Value room_, fits_;  // where a value is kept, and whether it has room for a row
    Values values_;  // for each instruction: its value for the row, once it is known
    Values reduced_;  // for each reduction: its result, once it is known
};

}  // namespace

void write_rows(Frame& frame) { RowWriter(frame).write(); }

}  // namespace megjit::codegen::loops
