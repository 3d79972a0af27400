// Rows of dots, lanes along the sum (codegen/tiles.h): a unit is kDotRows rows. Several of them are
// walked together, with their lanes in registers: no dot waits for its last sum, and what all rows
// read is loaded once.
#include <algorithm>

#include "codegen/loops/reducer.h"
#include "codegen/tiles.h"

namespace megjit::codegen::loops {
namespace {

class DotWriter {
public:
    explicit DotWriter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          plan_(row_plan_of(frame.kernel)),
          walk_(plan_.walks.front()),
          shared_(same_for_rows(frame.kernel, walk_.elements)),
          vectors_(static_cast<size_t>(plan_.lanes / frame.width)) {
        std::ranges::set_difference(walk_.elements, shared_, std::back_inserter(own_));
    }

    void write() {
        std::vector<UnitAxis> axes = kept_axes(f_);
        UnitAxis& of_rows = axes.back();
        const Value rows = of_rows.extent, block = b_.index(kDotRows);
        make_blocks(b_, of_rows, kDotRows);
        const int64_t together = f_.target.schedule.dot_rows(f_.target.registers, own_.size());
        for_units(f_, axes, [&](Value, Value unit, const Values& bases) {
            const Value left = b_.smaller(block, b_.sub(rows, b_.mul(unit, block)));
            Value row = b_.index(0);
            for (int64_t count = together; count > 0; count /= 2) {
                const Value end = b_.sub(left, b_.mod(left, b_.index(count)));
                write_rows(bases, row, end, count);
                row = end;
            }
        });
    }

private:
    void write_rows(const Values& bases, Value from, Value to, int64_t together) {
        b_.loop(from, to, together, {}, [&](Value row, const Values&) {
            const Values first = f_.along(bases, f_.kernel.kept() - 1, row);
            std::vector<Values> rows;
            for (int64_t n = 0; n < together; ++n) rows.push_back(at_row(first, n));
            write_dots(rows);
            return Values();
        });
    }
    Values at_row(const Values& bases, int64_t row) {
        return row ? f_.along(bases, f_.kernel.kept() - 1, b_.index(row)) : bases;
    }

    void write_dots(const std::vector<Values>& rows) {
        std::vector<Values> known;  // indexed by row and instruction
        for (const Values& bases : rows) {
            known.emplace_back(static_cast<size_t>(f_.kernel.program.size()));
            f_.evaluate_row(walk_, bases, {b_.index(0)}, {}, known.back());
        }
        Reducer reducer(f_, walk_.reductions);
        Values start;
        for (size_t n = 0; n < rows.size() * vectors_; ++n) append(start, reducer.start_lanes());
        const Values sums =
            f_.for_runs(rows[0], start, [&](const Frame::Run& run, const Values& in) {
            const Value whole = b_.sub(run.length, b_.mod(run.length, b_.index(plan_.lanes)));
            const auto take_all = [&](Value at, Value end, const Values& state) {
                return taken(reducer, run, at, end, known, state);
            };
            const Values after =
                b_.loop(b_.index(0), whole, plan_.lanes, in,
                        [&](Value at, const Values& state) { return take_all(at, {}, state); });
            return b_.choose(b_.less(whole, run.length), [&] {
                return take_all(whole, run.length, after);
            }, [&] { return after; });
        });
        const size_t width = reducer.lane_values();
        for (size_t n = 0; n < rows.size(); ++n) {
            std::vector<Values> lanes;
            for (size_t v = 0; v < vectors_; ++v) {
                const auto own = std::span(sums).subspan((n * vectors_ + v) * width, width);
                lanes.emplace_back(own.begin(), own.end());
            }
            const Values results = reducer.results(reducer.folded(lanes), f_.row_elements());
            Values reduced(f_.kernel.reductions.size());
            for (size_t r = 0; r < results.size(); ++r)
                reduced[static_cast<size_t>(walk_.reductions[r].reduction)] = results[r];
            f_.evaluate_row(plan_.walks.back(), rows[n], {b_.index(0)}, reduced, known[n]);
            for (const size_t k : plan_.outputs) f_.store_lane0(k, rows[n], known[n]);
        }
    }

    // Takes one element for each lane of all rows, from `at` on; only elements before `end` if that
    // is given. The state is ordered by row and vector.
    Values taken(Reducer& reducer, const Frame::Run& run, Value at, Value end,
                 const std::vector<Values>& known, const Values& state) {
        const size_t width = reducer.lane_values();
        Values next = state;
        for (size_t v = 0; v < vectors_; ++v) {
            const Value from = b_.add(at, b_.index(static_cast<int64_t>(v) * f_.width));
            const auto lanes_of = [&](size_t n) {
                const auto own = next.begin() + static_cast<ptrdiff_t>((n * vectors_ + v) * width);
                return std::span(own, width);
            };
            const auto take = [&] {
                const Piece piece =
                    end ? f_.partial(from, b_.smaller(b_.sub(end, from), b_.index(f_.width)))
                        : Piece{from};
                std::vector<Values> values = known, bases;
                f_.evaluate(shared_, run.bases, piece, values[0]);
                for (size_t n = 0; n < values.size(); ++n) {
                    for (const int id : shared_)
                        values[n][static_cast<size_t>(id)] = values[0][static_cast<size_t>(id)];
                    bases.push_back(at_row(run.bases, static_cast<int64_t>(n)));
                }
                f_.evaluate(own_, bases, piece, values);
                Values all;
                for (size_t n = 0; n < values.size(); ++n) {
                    Values none, own(lanes_of(n).begin(), lanes_of(n).end());
                    reducer.take(none, own, values[n], piece.mask, {});
                    append(all, own);
                }
                return all;
            };
            const auto before = [&] {
                Values all;
                for (size_t n = 0; n < known.size(); ++n)
                    all.insert(all.end(), lanes_of(n).begin(), lanes_of(n).end());
                return all;
            };
            const Values all = end && v > 0 ? b_.choose(b_.less(from, end), take, before) : take();
            for (size_t n = 0; n < known.size(); ++n)
                std::ranges::copy(std::span(all).subspan(n * width, width), lanes_of(n).begin());
        }
        return next;
    }

    Frame& f_;
    Builder& b_;
    const RowPlan plan_;
    const RowWalk& walk_;
    const std::vector<int> shared_;  // instructions of elements with one value for all rows
    std::vector<int> own_;  // the other instructions
    const size_t vectors_;  // vectors that hold the lanes of a row
};

}  // namespace

void write_dots(Frame& frame) { DotWriter(frame).write(); }

}  // namespace megjit::codegen::loops
