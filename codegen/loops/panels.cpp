// Panels (codegen/tiles.h): a unit is kPanelRows rows of kColumnBlock columns. The factors of some
// vectors of columns are computed once for some indices of the reduced axis, whatever their strides
// in memory, and kept on the stack: a panel, which stays in the L1 cache while all rows walk over
// it, some at a time. The rows' sums wait on the stack from panel to panel. The first of some
// neighboring units walks for all of them, so that a panel serves more rows.
#include "codegen/loops/frame.h"
#include "codegen/tiles.h"

namespace megjit::codegen::loops {
namespace {

class PanelWriter {
public:
    explicit PanelWriter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          plan_(row_plan_of(frame.kernel)),
          tile_(*tile_plan_of(frame.kernel)),
          walk_(plan_.walks.front()),
          row_axis_(frame.kernel.kept() - 2),
          group_(frame.target.schedule.tile_vectors),
          most_terms_(frame.target.schedule.panel_terms),
          units_together_(frame.target.schedule.panel_units) {
        const std::vector<int>& takes = walk_.reductions.front().takes;
        const size_t column = tile_.is_of_columns(takes[0]) ? 0 : 1;
        of_column_ = static_cast<size_t>(takes[column]);
        of_row_ = static_cast<size_t>(takes[1 - column]);
        for (const int id : tile_.of_columns)
            (is_transposed(id) ? transposed_ : read_).push_back(id);
        const Type vector{Kind::f32, f_.width};
        panel_ = b_.room(vector, most_terms_ * group_);
        sums_ = b_.room(vector, units_together_ * kPanelRows * kColumnBlock / f_.width);
    }

    // Writes the loop over units, which go down the rows.
    void write() {
        std::vector<UnitAxis> axes = kept_axes(f_);
        std::swap(axes[axes.size() - 2], axes.back());
        UnitAxis &of_columns = axes[axes.size() - 2], &of_rows = axes.back();
        const Value columns = of_columns.extent, rows = of_rows.extent,
                    most = b_.index(units_together_);
        make_blocks(b_, of_columns, kColumnBlock);
        make_blocks(b_, of_rows, kPanelRows);
        const Value column_blocks = of_columns.extent, row_blocks = of_rows.extent;
        for_units(f_, axes, [&](Value unit, Value number, const Values& bases) {
            for_neighbors(f_, unit, number, row_blocks, most, [&](Value together) {
                const Value column = b_.mod(b_.div(unit, row_blocks), column_blocks);
                rows_ = b_.smaller(b_.mul(together, b_.index(kPanelRows)),
                                   b_.sub(rows, b_.mul(number, b_.index(kPanelRows))));
                columns_ = b_.smaller(b_.index(kColumnBlock),
                                      b_.sub(columns, b_.mul(column, b_.index(kColumnBlock))));
                write_unit(bases);
            });
        });
    }

private:
    bool is_transposed(int id) const {
        const runtime::ScalarInst& inst = f_.kernel.program[id];
        return inst.op == runtime::ScalarOp::input &&
               f_.kernel.inputs[inst.bits].inner == Inner::transposed;
    }
    Values at_term(const Values& bases, Value k) { return f_.along(bases, f_.kernel.rank - 1, k); }
    Values at_row(const Values& bases, Value row) { return f_.along(bases, row_axis_, row); }
    // Sums are stored in rows of kColumnBlock.
    Value sum_at(Value row, Value column) {
        return b_.at(sums_, b_.add(b_.mul(row, b_.index(kColumnBlock)), column));
    }

    void write_unit(const Values& bases) {
        const Value zero = b_.number({Kind::f32, f_.width}, 0);
        for_rows_and_vectors([&](Value row, Value at) { b_.store(sum_at(row, at), zero, true); });
        f_.for_runs(bases, {}, [&](const Frame::Run& run, const Values&) {
            b_.loop(b_.index(0), run.length, most_terms_, {}, [&](Value first, const Values&) {
                terms_ = b_.smaller(b_.index(most_terms_), b_.sub(run.length, first));
                write_panels(at_term(run.bases, first));
                return Values();
            });
            return Values();
        });
        for_rows_and_vectors([&](Value row, Value at) { write_results(bases, row, at); });
    }

    void for_rows_and_vectors(const std::function<void(Value row, Value at)>& body) {
        b_.loop(b_.index(0), rows_, 1, {}, [&](Value row, const Values&) {
            b_.loop(b_.index(0), columns_, f_.width, {}, [&](Value at, const Values&) {
                body(row, at);
                return Values();
            });
            return Values();
        });
    }

    // ---- panels: the vectors of a group at an index of the reduced axis, then those at the next
    // ----

    void write_panels(const Values& bases) {
        const int64_t step = group_ * f_.width;
        const Value whole = b_.sub(columns_, b_.mod(columns_, b_.index(step)));
        b_.loop(b_.index(0), whole, step, {}, [&](Value at, const Values&) {
            std::vector<Piece> pieces;
            for (int64_t v = 0; v < group_; ++v)
                pieces.push_back({b_.add(at, b_.index(v * f_.width))});
            pack(bases, pieces);
            write_sums(bases, at, group_);
            return Values();
        });
        b_.loop(whole, columns_, f_.width, {}, [&](Value at, const Values&) {
            pack(bases, {f_.partial(at, b_.sub(columns_, at))});
            write_sums(bases, at, 1);
            return Values();
        });
    }

    // Packs a group of vectors.
    void pack(const Values& bases, const std::vector<Piece>& pieces) {
        const Value step = b_.index(static_cast<int64_t>(pieces.size()) * f_.width);
        std::vector<Values> known;
        for (const Piece& piece : pieces) {
            known.emplace_back(static_cast<size_t>(f_.kernel.program.size()));
            f_.evaluate(tile_.known_of_columns, bases, piece, known.back());
        }
        const auto keep = [&](Value k, size_t v, const Values& values) {
            const Value to = b_.add(b_.mul(k, step), b_.index(static_cast<int64_t>(v) * f_.width));
            b_.store(b_.at(panel_, to), values[of_column_], true);
        };
        Value done = b_.index(0);
        if (!transposed_.empty()) {
            done = b_.sub(terms_, b_.mod(terms_, b_.index(f_.width)));
            for (size_t v = 0; v < pieces.size(); ++v)
                b_.loop(b_.index(0), done, f_.width, {}, [&](Value k, const Values&) {
                    pack_transposed(at_term(bases, k), pieces[v], known[v],
                                    [&](int64_t n, const Values& values) {
                        keep(b_.add(k, b_.index(n)), v, values);
                    });
                    return Values();
                });
        }
        b_.loop(done, terms_, 1, {}, [&](Value k, const Values&) {
            const Values there = at_term(bases, k);
            for (size_t v = 0; v < pieces.size(); ++v) {
                Values values = known[v];
                f_.evaluate(tile_.of_columns, there, pieces[v], values);
                keep(k, v, values);
            }
            return Values();
        });
    }

    // Packs as many indices of the reduced axis as a vector has lanes.
    void pack_transposed(const Values& bases, const Piece& piece, const Values& known,
                         const std::function<void(int64_t n, const Values& values)>& keep) {
        std::vector<Values> all(static_cast<size_t>(f_.width), known);
        for (const int id : transposed_) {
            const auto input = static_cast<size_t>(f_.kernel.program[id].bits);
            const Value stride = f_.strides[input][static_cast<size_t>(f_.kernel.lane_axis())];
            Values rows;  // rows of memory; for missing columns the last one is repeated
            for (int lane = 0; lane < f_.width; ++lane) {
                Value column = b_.index(lane);
                if (piece.left) column = b_.smaller(column, b_.sub(piece.left, b_.index(1)));
                const Value from = b_.mul(b_.add(piece.at, column), stride);
                rows.push_back(b_.load(b_.at(bases[input], from), f_.width, false));
            }
            rows = b_.transposed(std::move(rows));
            for (size_t n = 0; n < rows.size(); ++n)
                all[n][static_cast<size_t>(id)] = b_.widen(f_.kernel.inputs[input].dtype, rows[n]);
        }
        for (int64_t n = 0; n < f_.width; ++n) {
            Values& values = all[static_cast<size_t>(n)];
            f_.evaluate(read_, at_term(bases, b_.index(n)), piece, values);
            keep(n, values);
        }
    }

    // ---- sums ----

    void write_sums(const Values& bases, Value at, int64_t vectors) {
        const int64_t most = f_.target.schedule.panel_rows(f_.target.registers);
        Value row = b_.index(0);
        for (const int64_t count : {most, most / 2, int64_t{1}}) {
            const Value rest = b_.mod(b_.sub(rows_, row), b_.index(count));
            const Value end = b_.sub(rows_, rest);
            b_.loop(row, end, count, {}, [&](Value first, const Values&) {
                write_tile(at_row(bases, first), first, count, at, vectors);
                return Values();
            });
            row = end;
        }
    }

    void write_tile(const Values& bases, Value first, int64_t rows, Value at, int64_t vectors) {
        std::vector<Values> known;
        Values start, places;
        for (int64_t row = 0; row < rows; ++row) {
            known.emplace_back(static_cast<size_t>(f_.kernel.program.size()));
            f_.evaluate(tile_.known_of_rows, at_row(bases, b_.index(row)), {at}, known.back());
            for (int64_t v = 0; v < vectors; ++v) {
                places.push_back(
                    sum_at(b_.add(first, b_.index(row)), b_.add(at, b_.index(v * f_.width))));
                start.push_back(b_.load(places.back(), f_.width, true));
            }
        }
        const Values sums =
            b_.loop(b_.index(0), terms_, 1, start, [&](Value k, const Values& state) {
            Values columns, next;
            const Value from = b_.at(panel_, b_.mul(k, b_.index(vectors * f_.width)));
            for (int64_t v = 0; v < vectors; ++v)
                columns.push_back(b_.load(b_.at(from, b_.index(v * f_.width)), f_.width, true));
            for (int64_t row = 0; row < rows; ++row) {
                Values values = known[static_cast<size_t>(row)];
                f_.evaluate(tile_.of_rows, at_row(at_term(bases, k), b_.index(row)), {at}, values);
                for (const Value column : columns)
                    next.push_back(
                        b_.compute(ScalarOp::fma, {values[of_row_], column, state[next.size()]}));
            }
            return next;
        });
        for (size_t n = 0; n < sums.size(); ++n) b_.store(places[n], sums[n], true);
    }

    void write_results(const Values& bases, Value row, Value at) {
        const Values there = f_.gathered(at_row(bases, row));
        const Piece piece = f_.either(at, b_.sub(columns_, at));
        Values values(static_cast<size_t>(f_.kernel.program.size()));
        f_.evaluate_row(walk_, there, piece, {}, values);
        f_.evaluate_row(plan_.walks.back(), there, piece,
                        {b_.load(sum_at(row, at), f_.width, true)}, values);
        f_.store(plan_.outputs, there, piece, values);
    }

    Frame& f_;
    Builder& b_;
    const RowPlan plan_;
    const TilePlan tile_;
    const RowWalk& walk_;
    const int row_axis_;
    const int64_t group_;  // vectors that go through a tile together
    const int64_t most_terms_, units_together_;
    size_t of_column_ = 0, of_row_ = 0;  // instructions of the two factors
    std::vector<int> transposed_, read_;  // instructions of columns: transposed inputs, and others
    Value panel_, sums_;  // rooms for a panel, and for sums
    Value rows_, columns_, terms_;  // counts: rows and columns of the unit, terms of the panel
};

}  // namespace

void write_panels(Frame& frame) { PanelWriter(frame).write(); }

}  // namespace megjit::codegen::loops
