// Tiles on a GPU (codegen/tiles.h): a block of threads computes some rows of some columns. What
// both factors give for some indices of the reduced axis is computed once and kept in shared
// memory; each thread adds products to sums of its own, in registers. Results go through shared
// memory as well: whatever is computed of them stands in the code once, and neighbors store
// neighbors.
//
// Each sum takes its products in the order of codegen/row_plan.h: the bits are those of a CPU.
#include <algorithm>

#include "codegen/loops/frame.h"
#include "codegen/tiles.h"

namespace megjit::codegen::loops {
namespace {

constexpr int64_t kPadding = 4;  // of a row in shared memory: neighbors are in other banks

class TeamTileWriter {
public:
    explicit TeamTileWriter(Frame& frame)
        : f_(frame, 1, true),
          b_(frame.b),
          plan_(*frame.target.gpu),
          rows_plan_(row_plan_of(frame.kernel)),
          walk_(rows_plan_.walks.front()),
          tile_(plan_.tile_size()),
          thread_(b_.where(Where::thread)) {
        const TilePlan tile = *tile_plan_of(frame.kernel);
        const std::vector<int>& takes = walk_.reductions.front().takes;
        const size_t column = tile.is_of_columns(takes[0]) ? 0 : 1;
        const int axis = f_.kernel.lane_axis();
        rows_ = {.id = static_cast<size_t>(takes[1 - column]),
                 .known = tile.known_of_rows,
                 .elements = tile.of_rows,
                 .axis = axis - 1,
                 .size = tile_.rows,
                 .is_along_sum = plan_.rows_lie_along_sum};
        columns_ = {.id = static_cast<size_t>(takes[column]),
                    .known = tile.known_of_columns,
                    .elements = tile.of_columns,
                    .axis = axis,
                    .size = tile_.columns,
                    .is_along_sum = columns_lie_along_sum(tile.of_columns)};
        const int64_t sums = rows_.size * columns_.size,
                      factors = tile_.terms * (rows_.pitch() + columns_.pitch());
        const Type vector{Kind::f32, plan_.vector};
        rows_.room = b_.room(vector, std::max(sums, factors) / plan_.vector, true);
        columns_.room = b_.at(rows_.room, b_.index(tile_.terms * rows_.pitch()));
    }

    // Blocks go down the rows.
    void write() {
        Value rest = b_.where(Where::block);
        for (Factor* factor : {&rows_, &columns_}) {
            const Value extent = f_.extents[static_cast<size_t>(factor->axis)];
            const Value blocks = b_.divided_up(extent, factor->size);
            factor->first = b_.mul(b_.mod(rest, blocks), b_.index(factor->size));
            factor->last = b_.sub(extent, b_.index(1));
            rest = b_.div(rest, blocks);
        }
        const Values bases = f_.moved_to(f_.bases, 0, rows_.axis, rest);
        for (Factor* factor : {&rows_, &columns_}) place(*factor, bases);
        const Type vector{Kind::f32, plan_.vector};
        const Values start(static_cast<size_t>(tile_.own_rows * vectors()), b_.number(vector, 0));
        const Values sums = f_.for_runs(bases, start, [&](const Frame::Run& run, const Values& in) {
            const int64_t terms = tile_.terms;
            const Value rest_of_run = b_.mod(run.length, b_.index(terms)),
                        whole = b_.sub(run.length, rest_of_run);
            const Values after =
                b_.loop(b_.index(0), whole, terms, in, [&](Value first, const Values& state) {
                return added(run, first, b_.index(terms), state);
            });
            return b_.choose(b_.less(whole, run.length), [&] {
                return added(run, whole, rest_of_run, after);
            }, [&] { return after; });
        });
        write_results(bases, sums);
    }

private:
    // What rows or columns give to the sum: in shared memory all of a tile at an index of the
    // reduced axis, then those at the next.
    struct Factor {
        size_t id = 0;  // the instruction
        std::vector<int> known, elements;
        int axis = 0;
        int64_t size = 0;  // of the tile
        bool is_along_sum = false;  // in memory: so neighboring threads read
        Value room = {}, first = {}, last = {};
        // Of what this thread computes: the index along the axis, from the tile's first; values
        // that are known before the walk.
        Values at = {};
        std::vector<Values> before = {};
        int64_t pitch() const { return size + kPadding; }
    };
    bool columns_lie_along_sum(const std::vector<int>& elements) const {
        return std::ranges::none_of(elements, [&](int id) {
            const runtime::ScalarInst& inst = f_.kernel.program[id];
            return inst.op == ScalarOp::input &&
                   f_.kernel.inputs[inst.bits].inner == Inner::contiguous;
        });
    }
    int64_t vectors() const { return TileSize::kOwnColumns / plan_.vector; }
    // Threads that share rows.
    Value across() { return b_.index(tile_.columns / TileSize::kOwnColumns); }

    // Elements of a factor that this thread computes: one of `inner` neighbors, and of all others
    // those that its number leads to.
    int64_t inner(const Factor& factor) const {
        return factor.is_along_sum ? tile_.terms : factor.size;
    }
    int64_t own(const Factor& factor) const { return factor.size * tile_.terms / plan_.threads; }
    Value inner_of(const Factor& factor) { return b_.mod(thread_, b_.index(inner(factor))); }
    Value outer_of(const Factor& factor, int64_t n) {
        return b_.add(b_.div(thread_, b_.index(inner(factor))),
                      b_.index(n * (plan_.threads / inner(factor))));
    }
    // Those behind the last one do as if they stood on it: all they read is there, and what comes
    // of it is not stored.
    Value clamped(Value at, Value last) { return b_.smaller(at, last); }
    std::pair<Values, Piece> stands(const Factor& factor, const Values& bases, Value at) {
        const Value there = clamped(b_.add(factor.first, at), factor.last);
        if (factor.axis == rows_.axis) return {f_.along(bases, factor.axis, there), {b_.index(0)}};
        return {bases, {there}};
    }
    void place(Factor& factor, const Values& bases) {
        for (int64_t n = 0; n < own(factor); ++n) {
            factor.at.push_back(factor.is_along_sum ? outer_of(factor, n) : inner_of(factor));
            const auto [there, piece] = stands(factor, bases, factor.at.back());
            factor.before.emplace_back(static_cast<size_t>(f_.kernel.program.size()));
            f_.evaluate(factor.known, there, piece, factor.before.back());
        }
    }
    Value term(const Factor& factor, int64_t n) {
        return factor.is_along_sum ? inner_of(factor) : outer_of(factor, n);
    }

    Values computed(const Factor& factor, const Frame::Run& run, Value first) {
        Values values;
        const Value last = b_.sub(run.length, b_.index(1));
        for (int64_t n = 0; n < own(factor); ++n) {
            const Value k = clamped(b_.add(first, term(factor, n)), last);
            const auto [there, piece] =
                stands(factor, run.bases, factor.at[static_cast<size_t>(n)]);
            Values all = factor.before[static_cast<size_t>(n)];
            f_.evaluate(factor.elements, f_.along(there, f_.kernel.rank - 1, k), piece, all);
            values.push_back(all[factor.id]);
        }
        return values;
    }
    void keep(const Factor& factor, const Values& values) {
        for (int64_t n = 0; n < own(factor); ++n) {
            const Value to = b_.add(b_.mul(term(factor, n), b_.index(factor.pitch())),
                                    factor.at[static_cast<size_t>(n)]);
            b_.store(b_.at(factor.room, to), values[static_cast<size_t>(n)], true);
        }
    }

    // The products at `count` indices of the reduced axis.
    Values added(const Frame::Run& run, Value first, Value count, const Values& sums) {
        const Values of_rows = computed(rows_, run, first),
                     of_columns = computed(columns_, run, first);
        b_.barrier(false);  // nobody reads what was kept before
        keep(rows_, of_rows);
        keep(columns_, of_columns);
        b_.barrier(false);
        const auto pitch = [&](const Factor& factor, Value k) {
            return b_.at(factor.room, b_.mul(k, b_.index(factor.pitch())));
        };
        return b_.loop(b_.index(0), count, 1, sums, [&](Value k, const Values& state) {
            const Value row = pitch(rows_, k), column = pitch(columns_, k);
            Values columns, next;
            for (int64_t v = 0; v < vectors(); ++v)
                columns.push_back(b_.load(b_.at(column, own_column(v)), plan_.vector, true));
            const int wide = std::min(plan_.vector, tile_.own_rows);
            for (int64_t r = 0; r < tile_.own_rows; r += wide) {
                const Value rows = b_.load(b_.at(row, own_row(r)), wide, true);
                for (int lane = 0; lane < wide; ++lane)
                    for (const Value of_column : columns)
                        next.push_back(
                            b_.compute(ScalarOp::fma, {b_.splat(b_.lane(rows, lane), plan_.vector),
                                                       of_column, state[next.size()]}));
            }
            return next;
        });
    }
    // In the tile. Of columns the first of a vector: those of neighboring threads are neighbors.
    Value own_row(int64_t r) {
        return b_.add(b_.mul(b_.div(thread_, across()), b_.index(tile_.own_rows)), b_.index(r));
    }
    Value own_column(int64_t v) {
        const Value number = b_.add(b_.mod(thread_, across()), b_.mul(across(), b_.index(v)));
        return b_.mul(number, b_.index(plan_.vector));
    }

    void write_results(const Values& bases, const Values& sums) {
        const Value width = b_.index(columns_.size);
        b_.barrier(false);
        for (int64_t n = 0; n < static_cast<int64_t>(sums.size()); ++n)
            b_.store(b_.at(rows_.room, b_.add(b_.mul(own_row(n / vectors()), width),
                                              own_column(n % vectors()))),
                     sums[static_cast<size_t>(n)], true);
        b_.barrier(false);
        b_.loop(thread_, b_.index(rows_.size * columns_.size), plan_.threads, {},
                [&](Value element, const Values&) {
            const Value row = b_.add(rows_.first, b_.div(element, width)),
                        column = b_.add(columns_.first, b_.mod(element, width));
            const Value is_there = b_.both(b_.compute(ScalarOp::le, {row, rows_.last}),
                                           b_.compute(ScalarOp::le, {column, columns_.last}));
            b_.branch(is_there, [&] {
                const Values there = f_.gathered(f_.along(bases, rows_.axis, row));
                Values values(static_cast<size_t>(f_.kernel.program.size()));
                f_.evaluate_row(walk_, there, {column}, {}, values);
                const Value sum = b_.load(b_.at(rows_.room, element), 1, true);
                f_.evaluate_row(rows_plan_.walks.back(), there, {column}, {sum}, values);
                f_.store(rows_plan_.outputs, there, {column}, values);
            });
            return Values();
        });
    }

    Frame f_;  // of single values
    Builder& b_;
    const GpuPlan& plan_;
    const RowPlan rows_plan_;
    const RowWalk& walk_;
    const TileSize& tile_;
    const Value thread_;
    Factor rows_, columns_;
};

}  // namespace

void write_team_tiles(Frame& frame) { TeamTileWriter(frame).write(); }

}  // namespace megjit::codegen::loops
