// Rows and columns on a GPU: a team of threads shares one index of the kept axes. Thread `lane`
// takes pieces lane, lane + team, ... of the reduced axes: kChain of these are a chain
// (codegen/row_plan.h), and the thread is a lane, which is finally merged with the others of its
// team.
#include "codegen/loops/team.h"

namespace megjit::codegen::loops {
namespace {

class TeamWriter {
public:
    explicit TeamWriter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          scalar_(frame, 1, true),
          team_(scalar_),
          plan_(*frame.target.gpu),
          rows_(row_plan_of(frame.kernel)),
          block_(frame.block),
          values_(static_cast<size_t>(frame.kernel.program.size())),
          reduced_(frame.kernel.reductions.size()) {}

    void write() {
        if (plan_.cover == Cover::columns) return write_column();
        const int kept = f_.kernel.kept();
        const Value row = b_.add(b_.mul(block_, b_.index(plan_.slots())), team_.slot());
        row_piece_ = {b_.index(0)};
        const auto write_it = [&] { write_row(f_.moved_to(f_.bases, 0, kept, row)); };
        if (plan_.slots() == 1) return write_it();
        // Whole warps skip this: no thread waits for threads without a row.
        b_.branch(b_.less(row, f_.product(0, kept)), write_it);
    }

private:
    // Threads beyond the last column take its place, but walk over no element of it and store
    // nothing.
    void write_column() {
        const int axis = f_.kernel.lane_axis();
        const Value columns = f_.extents[static_cast<size_t>(axis)];
        const Value blocks = b_.divided_up(columns, plan_.slots());
        const Value column =
            b_.add(b_.mul(b_.mod(block_, blocks), b_.index(plan_.slots())), team_.slot());
        is_active_ = b_.less(column, columns);
        row_piece_ = {b_.smaller(column, b_.sub(columns, b_.index(1)))};
        write_row(f_.moved_to(f_.bases, 0, axis, b_.div(block_, blocks)));
    }

    void write_row(const Values& at_row) {
        bases_ = f_.gathered(at_row);
        elements_ = f_.row_elements();
        worker_ = team_.lane();
        if (plan_.parts > 1)
            worker_ = b_.add(b_.mul(b_.where(Where::part), b_.index(plan_.team)), worker_);
        const int64_t width = plan_.vector, stride = workers() * width;
        const Value ahead = b_.sub(elements_, b_.mul(worker_, b_.index(width)));
        pieces_ =
            b_.div(b_.larger(b_.add(ahead, b_.index(stride - 1)), b_.index(0)), b_.index(stride));
        if (is_active_) pieces_ = b_.select(is_active_, pieces_, b_.index(0));
        write_walks(0);
    }

    // Writes walk number `n` and all that follows it.
    void write_walks(size_t n) {
        if (n == rows_.walks.size()) return write_outputs();
        const RowWalk& walk = rows_.walks[n];
        f_.evaluate_row(walk, bases_, row_piece_, reduced_, values_);
        if (walk.walks()) write_walk(walk, [&] { write_walks(n + 1); });
        else write_walks(n + 1);
    }

    void write_outputs() {
        const std::vector<size_t>& outputs = rows_.outputs;
        if (outputs.empty()) return;
        // An output may lie on an input of the row: all threads must have read it by now.
        team_.barrier();
        Value stores = b_.equal(team_.lane(), b_.index(0));
        if (is_active_) stores = b_.both(stores, is_active_);
        b_.branch(stores, [&] {
            if (plan_.cover == Cover::columns)
                return f_.store(outputs, bases_, row_piece_, values_);
            for (const size_t k : outputs) f_.store_lane0(k, bases_, values_);
        });
    }

    // Each reduction has a reducer of its own: all share the walk, but are merged one after the
    // other, in little shared memory. Among blocks that share a row, the last one to finish does
    // the rest.
    void write_walk(const RowWalk& walk, const std::function<void()>& rest) {
        std::vector<Reducer> reducers;
        for (const Reduced& reduced : walk.reductions)
            reducers.emplace_back(scalar_, std::span(&reduced, 1));
        Values start;
        for (Reducer& reducer : reducers) append(start, reducer.start_lanes());
        const Values lanes = write_lanes(walk, reducers, start);
        std::vector<Values> totals;
        size_t first = 0;
        for (Reducer& reducer : reducers) {
            totals.push_back(team_.merged(reducer, slice(lanes, first, reducer.lane_values())));
            first += reducer.lane_values();
        }
        const auto finish = [&] {
            for (size_t n = 0; n < reducers.size(); ++n)
                reduced_[static_cast<size_t>(walk.reductions[n].reduction)] =
                    f_.splat(reducers[n].results(totals[n], elements_)[0]);
            rest();
        };
        if (plan_.parts == 1) return finish();
        const int64_t words = part_words(f_.kernel);
        const auto for_each = [&](const auto& visit) {
            int64_t word = 0;
            for (size_t n = 0; n < reducers.size(); ++n) {
                visit(n, word);
                for (const Value state : totals[n]) word += bytes_of(b_.type_of(state).kind) / 4;
            }
        };
        b_.branch(b_.equal(team_.lane(), b_.index(0)), [&] {
            for_each([&](size_t n, int64_t word) { team_.leave(totals[n], block_, word, words); });
        });
        b_.branch(is_last_part(f_, b_.at(f_.tickets, block_)), [&] {
            for_each([&](size_t n, int64_t word) {
                totals[n] = team_.all_parts(reducers[n], totals[n], block_, word, words);
            });
            finish();
        });
    }

    // Walks over all pieces of this thread. Where a load has one element only, several are loaded
    // before the first is used: otherwise too few bytes would be under way to hide the GPU's
    // latency.
    Values write_lanes(const RowWalk& walk, std::vector<Reducer>& reducers, Values lanes) {
        constexpr size_t kShortWalk = 40;  // instructions; kChain / 2 pieces are held at a time
        const Value chain = b_.index(kChain);
        Value whole = b_.index(0);
        if (plan_.vector == 1 && walk.elements.size() <= kShortWalk) {
            whole = b_.sub(pieces_, b_.mod(pieces_, chain));
            lanes =
                b_.loop(b_.index(0), whole, kChain, lanes, [&](Value from, const Values& state) {
                return write_whole_chain(walk, reducers, from, state);
            });
        }
        return b_.loop(whole, pieces_, kChain, lanes, [&](Value from, const Values& state) {
            return write_chains(walk, reducers, from, b_.smaller(pieces_, b_.add(from, chain)),
                                state);
        });
    }

    // Takes kChain pieces, from number `from` on.
    Values write_whole_chain(const RowWalk& walk, std::vector<Reducer>& reducers, Value from,
                             const Values& lanes) {
        constexpr size_t kLittle = 12;  // instructions
        const int at_once = walk.elements.size() <= kLittle ? kChain : kChain / 2;
        Values state = started(reducers, lanes);
        for (int first = 0; first < kChain; first += at_once) {
            std::vector<Evaluated> pieces;
            for (int k = first; k < first + at_once; ++k)
                pieces.push_back(evaluated(walk, b_.add(from, b_.index(k))));
            for (const Evaluated& piece : pieces)
                f_.store(walk.outputs, piece.bases, piece.at, piece.values);
            for (const Evaluated& piece : pieces) state = taken(walk, reducers, piece, state);
        }
        return ended(reducers, state);
    }

    // Takes pieces from..to of this thread.
    Values write_chains(const RowWalk& walk, std::vector<Reducer>& reducers, Value from, Value to,
                        const Values& lanes) {
        const Values state = started(reducers, lanes);
        return ended(reducers, b_.loop(from, to, 1, state, [&](Value number, const Values& own) {
            const Evaluated piece = evaluated(walk, number);
            f_.store(walk.outputs, piece.bases, piece.at, piece.values);
            return taken(walk, reducers, piece, own);
        }));
    }

    // The initial chains of all reducers, then their lanes.
    Values started(std::vector<Reducer>& reducers, const Values& lanes) {
        Values state;
        for (Reducer& reducer : reducers) append(state, reducer.start_chains());
        append(state, lanes);
        return state;
    }
    static size_t chains_of(const std::vector<Reducer>& reducers) {
        size_t chains = 0;
        for (const Reducer& reducer : reducers) chains += reducer.chain_values();
        return chains;
    }
    // The lanes, after the chains are joined to them.
    Values ended(std::vector<Reducer>& reducers, const Values& state) {
        Values next;
        size_t chain = 0, lane = chains_of(reducers);
        for (Reducer& reducer : reducers) {
            const size_t size = reducer.chain_values(), all = reducer.lane_values();
            append(next, reducer.with_chains(slice(state, lane, all), slice(state, chain, size)));
            chain += size;
            lane += all;
        }
        return next;
    }

    // A piece with its values, which no reducer has taken yet.
    struct Evaluated {
        Value place;
        Values bases;
        Piece at;
        Values values;
    };
    Evaluated evaluated(const RowWalk& walk, Value piece) {
        const Value number = b_.add(b_.mul(piece, b_.index(workers())), worker_);
        const Value place = b_.mul(number, b_.index(plan_.vector));
        const int kept = f_.kernel.kept(), rank = f_.kernel.rank;
        Evaluated it{place, {}, row_piece_, values_};
        if (plan_.cover == Cover::columns) {
            it.bases = f_.moved_to(bases_, kept, rank, place);
        } else {
            const Frame::Place there = f_.place_of(bases_, kept, rank, place);
            it.bases = there.bases;
            it.at = {there.last};
        }
        f_.evaluate(walk.elements, it.bases, it.at, it.values);
        return it;
    }
    Values taken(const RowWalk& walk, std::vector<Reducer>& reducers, const Evaluated& piece,
                 const Values& state) {
        Values next = state;
        for (int64_t k = 0; k < plan_.vector && !reducers.empty(); ++k)
            next =
                write_step(walk, reducers, static_cast<int>(k), piece.values, chains_of(reducers),
                           next, f_.i32_of(b_.add(piece.place, b_.index(k))));
        return next;
    }

    // Takes one element: number k of the values.
    Values write_step(const RowWalk& walk, std::vector<Reducer>& reducers, int k,
                      const Values& values, size_t chains, const Values& state, Value place) {
        Values single(values.size()), of_chains, of_lanes;
        size_t chain = 0, lane = chains;
        for (size_t n = 0; n < reducers.size(); ++n) {
            for (const int id : walk.reductions[n].takes)
                single[static_cast<size_t>(id)] = b_.lane(values[static_cast<size_t>(id)], k);
            Values own_chains = slice(state, chain, reducers[n].chain_values()),
                   own_lanes = slice(state, lane, reducers[n].lane_values());
            chain += own_chains.size();
            lane += own_lanes.size();
            reducers[n].take(own_chains, own_lanes, single, {}, place);
            append(of_chains, own_chains);
            append(of_lanes, own_lanes);
        }
        append(of_chains, of_lanes);
        return of_chains;
    }

    int64_t workers() const { return int64_t{plan_.team} * plan_.parts; }
    static Values slice(const Values& all, size_t first, size_t count) {
        const auto begin = all.begin() + static_cast<ptrdiff_t>(first);
        return Values(begin, begin + static_cast<ptrdiff_t>(count));
    }

    Frame& f_;  // for vectors
    Builder& b_;
    Frame scalar_;  // for single values
    Team team_;
    const GpuPlan& plan_;
    const RowPlan rows_;
    Value block_;
    Values values_;  // for each instruction: its value for the row, once it is known
    Values reduced_;  // for each reduction: its result, once it is known
    Values bases_;  // bases of the row
    Piece row_piece_;  // the row's place on the lane axis
    Value is_active_;  // has this thread a column? null: it has
    Value elements_;  // number of elements in the row
    Value worker_;  // number of this thread among all that share the row
    Value pieces_;  // pieces of the row that this thread takes
};

}  // namespace

void write_team_rows(Frame& frame) { TeamWriter(frame).write(); }

}  // namespace megjit::codegen::loops
