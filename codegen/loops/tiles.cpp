// Tiles (codegen/tiles.h): a unit is kTileRows rows of kColumnBlock columns. Some vectors of
// columns and some rows at a time walk the reduced axes together, with their accumulators in
// registers: values of columns are loaded once for all rows, values of rows are spread once for all
// columns. The rows of a unit follow each other over the same columns, which stay in the L1 cache.
#include "codegen/tiles.h"
#include "codegen/loops/frame.h"

namespace megjit::codegen::loops {
namespace {

class TileWriter {
public:
    explicit TileWriter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          plan_(row_plan_of(frame.kernel)),
          tile_(*tile_plan_of(frame.kernel)),
          row_axis_(frame.kernel.kept() - 2) {}

    void write() {
        std::vector<UnitAxis> axes = kept_axes(f_);
        UnitAxis &of_rows = axes[axes.size() - 2], &of_columns = axes.back();
        const Value rows = of_rows.extent, columns = of_columns.extent;
        make_blocks(b_, of_rows, kTileRows);
        make_blocks(b_, of_columns, kColumnBlock);
        const Value row_blocks = of_rows.extent, column_blocks = of_columns.extent;
        for_units(f_, axes, [&](Value unit, Value column, const Values& bases) {
            const Value row = b_.mod(b_.div(unit, column_blocks), row_blocks);
            write_unit(bases, left(rows, row, kTileRows), left(columns, column, kColumnBlock));
        });
    }

private:
    Value left(Value extent, Value block, int64_t size) {
        return b_.smaller(b_.index(size), b_.sub(extent, b_.mul(block, b_.index(size))));
    }

    void write_unit(const Values& bases, Value rows, Value columns) {
        const int64_t vectors = f_.target.schedule.tile_vectors, step = vectors * f_.width;
        const Value whole = b_.sub(columns, b_.mod(columns, b_.index(step)));
        b_.loop(b_.index(0), whole, step, {}, [&](Value at, const Values&) {
            std::vector<Piece> pieces;
            for (int64_t v = 0; v < vectors; ++v)
                pieces.push_back({b_.add(at, b_.index(v * f_.width))});
            write_rows(bases, rows, pieces);
            return Values();
        });
        b_.loop(whole, columns, f_.width, {}, [&](Value at, const Values&) {
            write_rows(bases, rows, {f_.partial(at, b_.sub(columns, at))});
            return Values();
        });
    }

    void write_rows(const Values& bases, Value rows, const std::vector<Piece>& pieces) {
        const int64_t together = f_.target.schedule.tile_rows(f_.target.registers);
        const Value whole = b_.sub(rows, b_.mod(rows, b_.index(together)));
        const auto from = [&](Value row, int64_t count) {
            write_tile(f_.along(bases, row_axis_, row), count, pieces);
            return Values();
        };
        b_.loop(b_.index(0), whole, together, {},
                [&](Value row, const Values&) { return from(row, together); });
        b_.loop(whole, rows, 1, {}, [&](Value row, const Values&) { return from(row, 1); });
    }

    void write_tile(const Values& bases, int64_t rows, const std::vector<Piece>& pieces) {
        const RowWalk &walk = plan_.walks.front(), &last = plan_.walks.back();
        const size_t width = pieces.size();
        const auto row_at = [&](const Values& from, int64_t row) {
            return f_.gathered(f_.along(from, row_axis_, b_.index(row)));
        };
        // Values that are known before the walk, indexed by row and piece.
        std::vector<Values> known;
        for (int64_t row = 0; row < rows; ++row)
            for (const Piece& piece : pieces) {
                Values values(static_cast<size_t>(f_.kernel.program.size()));
                f_.evaluate_row(walk, row_at(bases, row), piece, {}, values);
                known.push_back(std::move(values));
            }
        const Value zero = b_.number({Kind::f32, f_.width}, 0);
        const Values start(walk.reductions.size() * known.size(), zero);
        const Values sums = f_.for_runs(bases, start, [&](const Frame::Run& run, const Values& in) {
            return b_.loop(b_.index(0), run.length, 1, in, [&](Value k, const Values& state) {
                return with_products(walk, f_.along(run.bases, f_.kernel.rank - 1, k), rows, pieces,
                                     known, state);
            });
        });
        for (size_t at = 0; at < known.size(); ++at) {
            Values reduced(f_.kernel.reductions.size());
            for (size_t n = 0; n < walk.reductions.size(); ++n)
                reduced[static_cast<size_t>(walk.reductions[n].reduction)] =
                    sums[n * known.size() + at];
            const Values there = row_at(bases, static_cast<int64_t>(at / width));
            f_.evaluate_row(last, there, pieces[at % width], reduced, known[at]);
            f_.store(plan_.outputs, there, pieces[at % width], known[at]);
        }
    }

    // Adds the products at one index of the reduced axes to the state, which is ordered by
    // reduction, row and piece.
    Values with_products(const RowWalk& walk, const Values& bases, int64_t rows,
                         const std::vector<Piece>& pieces, const std::vector<Values>& known,
                         const Values& state) {
        const size_t width = pieces.size();
        std::vector<Values> columns, of_rows;
        for (size_t v = 0; v < width; ++v) {
            columns.push_back(known[v]);
            f_.evaluate(tile_.of_columns, bases, pieces[v], columns.back());
        }
        for (int64_t row = 0; row < rows; ++row) {
            of_rows.push_back(known[static_cast<size_t>(row) * width]);
            f_.evaluate(tile_.of_rows, f_.along(bases, row_axis_, b_.index(row)), pieces[0],
                        of_rows.back());
        }
        Values next;
        for (const Reduced& reduced : walk.reductions) {
            const size_t column = tile_.is_of_columns(reduced.takes[0]) ? 0 : 1;
            const auto of_column = static_cast<size_t>(reduced.takes[column]),
                       of_row = static_cast<size_t>(reduced.takes[1 - column]);
            for (const Values& row : of_rows)
                for (const Values& piece : columns)
                    next.push_back(b_.compute(ScalarOp::fma,
                                              {row[of_row], piece[of_column], state[next.size()]}));
        }
        return next;
    }

    Frame& f_;
    Builder& b_;
    const RowPlan plan_;
    const TilePlan tile_;
    const int row_axis_;
};

}  // namespace

void write_tiles(Frame& frame) { TileWriter(frame).write(); }

}  // namespace megjit::codegen::loops
