// Columns, lanes over the last kept axis: a unit is a block of kColumnBlock columns, or of the
// rest. A walk goes down the reduced axes by groups of rows, a chain in each column
// (codegen/row_plan.h), and along each group vector by vector over all columns of the unit. So
// memory is read in its order; lanes and values of columns are on the stack, chains in registers.
// Short bodies are written once for each row of a group, others once.
//
// The first of some neighboring units walks for all of them: a row of 64 columns is too short for
// the CPU to prefetch it. (Sums of 16 to 64 MB took twice the time.) No column depends on its
// neighbors, so this changes no bits.
#include <algorithm>

#include "codegen/loops/reducer.h"

namespace megjit::codegen::loops {
namespace {

// Units that walk together share a stack of this size; elements that several walks read stay in the
// L2 cache.
constexpr int64_t kStackBytes = 16384, kCachedElements = int64_t{1} << 17;

class ColumnWriter {
public:
    explicit ColumnWriter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          plan_(row_plan_of(frame.kernel)),
          rooms_(static_cast<size_t>(frame.kernel.program.size())) {
        int64_t bytes = 0;  // bytes of the stack, for each column
        for (const RowWalk& walk : plan_.walks)
            bytes += 16 * static_cast<int64_t>(walk.reductions.size()) +
                     4 * static_cast<int64_t>(walk.row.size());
        together_ = std::clamp<int64_t>(kStackBytes / std::max<int64_t>(bytes * kColumnBlock, 1), 1,
                                        frame.target.schedule.units_together);
    }

    void write() {
        std::vector<UnitAxis> axes = kept_axes(f_);
        const Value columns = axes.back().extent, block = b_.index(kColumnBlock);
        make_blocks(b_, axes.back(), kColumnBlock);
        const Value blocks = axes.back().extent, most = units_together();
        for_units(f_, axes, [&](Value unit, Value number, const Values& bases) {
            for_neighbors(f_, unit, number, blocks, most, [&](Value together) {
                columns_ =
                    b_.smaller(b_.mul(together, block), b_.sub(columns, b_.mul(number, block)));
                write_columns(f_.gathered(bases));
            });
        });
    }

private:
    Value units_together() {
        const auto walks = std::count_if(plan_.walks.begin(), plan_.walks.end(),
                                         [](const RowWalk& walk) { return walk.walks(); });
        if (walks < 2) return b_.index(together_);
        const Value rows = b_.larger(f_.row_elements(), b_.index(1));
        const Value cached = b_.div(b_.index(kCachedElements / kColumnBlock), rows);
        return b_.smaller(b_.index(together_), b_.larger(cached, b_.index(1)));
    }

    void write_columns(const Values& bases) {
        const RowWalk* before = nullptr;
        for (const RowWalk& walk : plan_.walks) {
            for_vectors(
                [&](Value v, const Piece& piece) { write_between(before, walk, bases, v, piece); });
            if (walk.walks()) write_walk(walk, bases);
            before = &walk;
        }
    }

    void for_vectors(const std::function<void(Value v, const Piece& piece)>& body) {
        const Value width = b_.index(f_.width);
        const Value vectors = b_.div(b_.add(columns_, b_.index(f_.width - 1)), width);
        b_.loop(b_.index(0), vectors, 1, {}, [&](Value v, const Values&) {
            const Value at = b_.mul(v, width);
            body(v, f_.either(at, b_.sub(columns_, at)));
            return Values();
        });
    }

    // Before a walk, computes the results of the walk before, and the values of columns that follow
    // from them.
    void write_between(const RowWalk* before, const RowWalk& walk, const Values& bases, Value v,
                       const Piece& piece) {
        Values values = known_values(v), reduced(f_.kernel.reductions.size());
        if (before && !before->reductions.empty()) {
            const Values results =
                Reducer(f_, before->reductions).results(load(totals_, v), f_.row_elements());
            for (size_t r = 0; r < results.size(); ++r)
                reduced[static_cast<size_t>(before->reductions[r].reduction)] = results[r];
        }
        f_.evaluate_row(walk, bases, piece, reduced, values);
        remember(v, values);
        if (&walk == &plan_.walks.back()) return f_.store(plan_.outputs, bases, piece, values);
        const Values start = Reducer(f_, walk.reductions).start_lanes();
        totals_.clear();
        for (const Value value : start) totals_.push_back(room_for(b_.type_of(value)));
        store(totals_, v, start);
    }

    void write_walk(const RowWalk& walk, const Values& bases) {
        Reducer reducer(f_, walk.reductions);
        f_.for_runs(bases, {}, [&](const Frame::Run& run, const Values&) {
            if (walk.reductions.empty())
                return b_.loop(b_.index(0), run.length, 1, {}, [&](Value row, const Values&) {
                    const std::vector<Values> there = rows_from(run, row, 1);
                    for_vectors([&](Value v, const Piece& piece) {
                        write_elements(walk, there, v, piece);
                    });
                    return Values();
                });
            Value rest = b_.index(0);
            if (f_.target.schedule.is_short(walk.elements.size())) {
                rest = b_.sub(run.length, b_.mod(run.length, b_.index(kChain)));
                b_.loop(b_.index(0), rest, kChain, {}, [&](Value first, const Values&) {
                    const std::vector<Values> there = rows_from(run, first, kChain);
                    for_vectors([&](Value v, const Piece& piece) {
                        write_group(walk, reducer, run, first, there, v, piece);
                    });
                    return Values();
                });
            }
            return b_.loop(rest, run.length, kChain, {}, [&](Value first, const Values&) {
                const Value end = b_.smaller(run.length, b_.add(first, b_.index(kChain)));
                for_vectors([&](Value v, const Piece& piece) {
                    write_group_by_loop(walk, reducer, run, first, end, v, piece);
                });
                return Values();
            });
        });
    }

    std::vector<Values> rows_from(const Frame::Run& run, Value first, int64_t rows) {
        std::vector<Values> bases;
        for (int64_t r = 0; r < rows; ++r)
            bases.push_back(f_.along(run.bases, f_.kernel.rank - 1, b_.add(first, b_.index(r))));
        return bases;
    }

    // Walks a whole group from row `first` on.
    void write_group(const RowWalk& walk, Reducer& reducer, const Frame::Run& run, Value first,
                     const std::vector<Values>& bases, Value v, const Piece& piece) {
        const std::vector<Values> values = write_elements(walk, bases, v, piece);
        Values chains = reducer.start_chains(), lanes = load(totals_, v);
        for (int64_t k = 0; k < kChain; ++k)
            take(reducer, run, b_.add(first, b_.index(k)), values[static_cast<size_t>(k)], chains,
                 lanes);
        store(totals_, v, reducer.with_chains(lanes, chains));
    }

    // Walks rows first..end of one group.
    void write_group_by_loop(const RowWalk& walk, Reducer& reducer, const Frame::Run& run,
                             Value first, Value end, Value v, const Piece& piece) {
        Values state = reducer.start_chains();
        const auto size = static_cast<ptrdiff_t>(state.size());
        append(state, load(totals_, v));
        const auto split = [&](const Values& all) {
            return std::pair(Values(all.begin(), all.begin() + size),
                             Values(all.begin() + size, all.end()));
        };
        state = b_.loop(first, end, 1, state, [&](Value row, const Values& own) {
            auto [chains, lanes] = split(own);
            take(reducer, run, row, write_elements(walk, rows_from(run, row, 1), v, piece)[0],
                 chains, lanes);
            append(chains, lanes);
            return chains;
        });
        const auto [chains, lanes] = split(state);
        store(totals_, v, reducer.with_chains(lanes, chains));
    }

    // Computes one vector of columns in some rows; all elements are read before any is written.
    std::vector<Values> write_elements(const RowWalk& walk, const std::vector<Values>& bases,
                                       Value v, const Piece& piece) {
        std::vector<Values> values(bases.size(), known_values(v));
        f_.evaluate(walk.elements, bases, piece, values);
        for (size_t r = 0; r < bases.size(); ++r)
            f_.store(walk.outputs, bases[r], piece, values[r]);
        return values;
    }

    void take(Reducer& reducer, const Frame::Run& run, Value row, const Values& values,
              Values& chains, Values& lanes) {
        Value place;  // lanes that take no part compute values that nobody stores
        if (reducer.needs_places()) place = f_.splat(f_.i32_of(b_.add(run.place, row)));
        reducer.take(chains, lanes, values, {}, place);
    }

    // ---- the stack: one vector for each vector of columns ----
    Value room_for(Type type) { return b_.room(type, together_ * kColumnBlock / f_.width); }
    Value room_at(Value room, Value v) { return b_.at(room, b_.mul(v, b_.index(f_.width))); }
    Value load(Value room, Value v) { return b_.load(room_at(room, v), f_.width, true); }
    void store(Value room, Value v, Value value) { b_.store(room_at(room, v), value, true); }
    Values load(const Values& rooms, Value v) {
        Values values;
        for (const Value room : rooms) values.push_back(load(room, v));
        return values;
    }
    void store(const Values& rooms, Value v, const Values& values) {
        for (size_t s = 0; s < rooms.size(); ++s) store(rooms[s], v, values[s]);
    }

    // For each instruction: its value, if it has one per column that is known by now.
    Values known_values(Value v) {
        Values values(rooms_.size());
        for (size_t id = 0; id < rooms_.size(); ++id) {
            const runtime::ScalarInst& inst = f_.kernel.program[static_cast<int>(id)];
            if (inst.op == ScalarOp::constant)
                values[id] = b_.constant({kind_of(inst.type), f_.width}, inst.bits);
            else if (rooms_[id]) values[id] = load(rooms_[id], v);
        }
        return values;
    }
    void remember(Value v, const Values& values) {
        for (size_t id = 0; id < rooms_.size(); ++id) {
            if (!values[id] || rooms_[id] ||
                f_.kernel.program[static_cast<int>(id)].op == ScalarOp::constant)
                continue;
            rooms_[id] = room_for(b_.type_of(values[id]));
            store(rooms_[id], v, values[id]);
        }
    }

    Frame& f_;
    Builder& b_;
    const RowPlan plan_;
    int64_t together_ = 1;  // units at most
    Value columns_;  // number of columns of these units
    Values rooms_;  // for each instruction: its values of columns, once they are known
    Values totals_;  // lanes of the current walk
};

}  // namespace

void write_columns(Frame& frame) { ColumnWriter(frame).write(); }

}  // namespace megjit::codegen::loops
