// Tiles on a GPU (codegen/tiles.h): a block of threads computes some rows of some columns. Both
// factors are computed once for some indices of the reduced axis and kept in shared memory; each
// thread adds products to sums of its own, in registers. Results go through shared memory as well:
// so the code that follows the sums is written once, and neighbors store neighbors.
//
// Where there are few tiles, blocks share the terms of one: each stores its sums in memory, and the
// last one adds them in the order of the terms.
//
// Each sum takes its products in the order of codegen/row_plan.h: the bits are those of a CPU,
// unless blocks share it. Tensor cores take sixteen products of halves together, in an order that
// the card defines.
#include <algorithm>

#include "codegen/loops/team.h"
#include "codegen/tiles.h"

namespace megjit::codegen::loops {
namespace {

// Unused words between two rows in shared memory: they put neighbors into different banks.
constexpr int64_t kPadding = 4, kResultPadding = 8;
constexpr bool fits_everywhere(const TileSize& tile) {
    constexpr int64_t kWords = (48 << 10) / 4;  // shared memory of a block that no GPU refuses
    return tile.rows * (tile.columns + kResultPadding) <= kWords &&
           tile.terms * (tile.rows + tile.columns + 2 * kPadding) <= kWords &&
           (tile.terms + kPadding) * (tile.rows + tile.columns) <= kWords;
}
static_assert(std::ranges::all_of(kTileSizes, fits_everywhere));

// The factor of rows or columns, in shared memory. For f32: all elements of a tile at an index of
// the reduced axis, then those at the next index. For halves, in words of two neighbors on the
// reduced axis: all words of a row (or column), then those of the next one.
struct Factor {
    size_t id = 0;  // the instruction that computes it
    std::vector<int> known, elements;
    int axis = 0;
    int64_t size = 0;  // rows or columns of the tile
    bool is_along_sum = false;  // neighboring threads read along the sum, as it lies in memory
    Value room = {}, first = {}, last = {};
    // For each word that this thread computes: its index along the axis, from the tile's first one;
    // and the values that are known before the walk.
    Values at = {};
    std::vector<Values> before = {};
};

class TeamTileWriter {
public:
    explicit TeamTileWriter(Frame& frame)
        : f_(frame, 1, true),
          b_(frame.b),
          plan_(*frame.target.gpu),
          tile_(plan_.tile_size()),
          halves_(plan_.tensor_cores ? halves_of(frame.kernel) : std::nullopt),
          rows_plan_(row_plan_of(frame.kernel)),
          walk_(rows_plan_.walks.front()),
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
        const int64_t results = tile_.rows * result_pitch(),
                      factors = words_of(rows_) + words_of(columns_);
        results_ =
            b_.room({Kind::f32, plan_.vector}, std::max(results, factors) / plan_.vector, true);
        rows_.room = results_;
        columns_.room = b_.at(results_, b_.index(words_of(rows_)));
    }

    // Writes the loop over blocks, which go down the rows.
    void write() {
        Value rest = f_.block;
        for (Factor* factor : {&rows_, &columns_}) {
            const Value extent = f_.extents[static_cast<size_t>(factor->axis)];
            const Value blocks = b_.divided_up(extent, factor->size);
            factor->first = b_.mul(b_.mod(rest, blocks), b_.index(factor->size));
            factor->last = b_.sub(extent, b_.index(1));
            rest = b_.div(rest, blocks);
        }
        const Values bases = f_.moved_to(f_.bases, 0, rows_.axis, rest);
        for (Factor* factor : {&rows_, &columns_}) place(*factor, bases);
        const Values start(static_cast<size_t>(tile_.own_rows * TileSize::kOwnColumns / lanes()),
                           b_.number({Kind::f32, lanes()}, 0));
        const Values sums = f_.for_runs(bases, start, [&](const Frame::Run& run, const Values& in) {
            const auto [from, to] = own_terms(run.length);
            const int64_t terms = tile_.terms * together();
            const Value left = b_.mod(b_.sub(to, from), b_.index(terms)), whole = b_.sub(to, left);
            const Values after = b_.loop(
                from, whole, terms, in,
                [&](Value first, const Values& state) { return added(run, first, {}, state); });
            return b_.choose(b_.less(whole, to), [&] { return added(run, whole, left, after); },
                             [&] { return after; });
        });
        write_results(bases, sums);
    }

private:
    // ---- blocks that share the terms: each takes neighbors ----
    std::pair<Value, Value> own_terms(Value length) {
        if (plan_.parts == 1) return {b_.index(0), length};
        const int64_t terms = tile_.terms * together();
        const Value each =
            b_.mul(b_.divided_up(b_.divided_up(length, terms), plan_.parts), b_.index(terms));
        const Value from = b_.smaller(b_.mul(b_.where(Where::part), each), length);
        return {from, b_.smaller(b_.add(from, each), length)};
    }
    Value place_of_part(Value part, Value element) {
        const Value tile = b_.add(b_.mul(f_.block, b_.index(plan_.parts)), part);
        return b_.at(f_.parts, b_.add(b_.mul(tile, b_.index(elements())), element));
    }
    int64_t elements() const { return int64_t{tile_.rows} * tile_.columns; }

    // ---- factors ----
    int64_t together() const { return halves_ ? 2 : 1; }  // indices of the reduced axis in a word
    int64_t pitch_of(const Factor& factor) const {
        return (halves_ ? tile_.terms : factor.size) + kPadding;
    }
    int64_t words_of(const Factor& factor) const {
        return (halves_ ? factor.size : tile_.terms) * pitch_of(factor);
    }
    Value word_at(const Factor& factor, Value at, Value term) {
        const Value outer = halves_ ? at : term, inner = halves_ ? term : at;
        return b_.at(factor.room, b_.add(b_.mul(outer, b_.index(pitch_of(factor))), inner));
    }
    bool columns_lie_along_sum(const std::vector<int>& elements) const {
        return std::ranges::none_of(elements, [&](int id) {
            const runtime::ScalarInst& inst = f_.kernel.program[id];
            return inst.op == ScalarOp::input &&
                   f_.kernel.inputs[inst.bits].inner == Inner::contiguous;
        });
    }

    // The first `inner` neighbors are divided among as many threads; each thread computes every so
    // many of the others.
    int64_t inner(const Factor& factor) const {
        return factor.is_along_sum ? tile_.terms : factor.size;
    }
    int64_t own(const Factor& factor) const { return factor.size * tile_.terms / plan_.threads; }
    Value inner_of(const Factor& factor) { return b_.mod(thread_, b_.index(inner(factor))); }
    Value outer_of(const Factor& factor, int64_t n) {
        return b_.add(b_.div(thread_, b_.index(inner(factor))),
                      b_.index(n * (plan_.threads / inner(factor))));
    }
    Value term_of(const Factor& factor, int64_t n) {  // counts words
        return factor.is_along_sum ? inner_of(factor) : outer_of(factor, n);
    }
    // Rows and columns beyond the last one are computed as if they were the last: everything they
    // read exists, and no stored result uses them.
    struct Stand {
        Values bases;
        Piece piece;
    };
    Stand stand(const Factor& factor, const Values& bases, Value at) {
        const Value there = b_.smaller(b_.add(factor.first, at), factor.last);
        if (factor.axis == rows_.axis) return {f_.along(bases, factor.axis, there), {b_.index(0)}};
        return {bases, {there}};
    }
    void place(Factor& factor, const Values& bases) {
        for (int64_t n = 0; n < own(factor); ++n) {
            factor.at.push_back(factor.is_along_sum ? outer_of(factor, n) : inner_of(factor));
            const Stand there = stand(factor, bases, factor.at.back());
            factor.before.emplace_back(static_cast<size_t>(f_.kernel.program.size()));
            f_.evaluate(factor.known, there.bases, there.piece, factor.before.back());
        }
    }

    // Computes the factor for `left` indices of the reduced axis from `first` on; null: for all of
    // a tile.
    Values computed(const Factor& factor, const Frame::Run& run, Value first, Value left) {
        Values words;
        for (int64_t n = 0; n < own(factor); ++n) {
            const Stand there = stand(factor, run.bases, factor.at[static_cast<size_t>(n)]);
            Values neighbors;
            for (int64_t next = 0; next < together(); ++next) {
                const Value term = b_.add(b_.mul(term_of(factor, n), b_.index(together())),
                                          b_.index(next)),
                            k = left ? b_.smaller(term, b_.sub(left, b_.index(1))) : term;
                Values all = factor.before[static_cast<size_t>(n)];
                f_.evaluate(factor.elements,
                            f_.along(there.bases, f_.kernel.rank - 1, b_.add(first, k)),
                            there.piece, all);
                neighbors.push_back(all[factor.id]);
                if (halves_ && left)  // the sum always takes sixteen
                    neighbors.back() =
                        b_.select(b_.less(term, left), neighbors.back(), b_.number({Kind::f32}, 0));
            }
            words.push_back(halves_ ? packed(neighbors[0], neighbors[1]) : neighbors[0]);
        }
        return words;
    }
    // Packs two halves into the bits of a word.
    Value packed(Value low, Value high) {
        const auto bits = [&](Value value) {
            if (*halves_ == DType::f16) return b_.widen(DType::u16, b_.shorten(DType::f16, value));
            return b_.compute(ScalarOp::shr_logical, {b_.bits(Kind::i32, value), word(16)});
        };
        return b_.bits(Kind::f32,
                       b_.any(bits(low), b_.compute(ScalarOp::shl, {bits(high), word(16)})));
    }
    Value word(uint64_t bits) { return b_.constant({Kind::i32}, bits); }

    // ---- sums ----
    int lanes() const { return halves_ ? 4 : plan_.vector; }  // lanes of a vector of sums

    Values added(const Frame::Run& run, Value first, Value left, const Values& sums) {
        const Values of_rows = computed(rows_, run, first, left),
                     of_columns = computed(columns_, run, first, left);
        b_.barrier(false);  // nobody reads the former factors any more
        for (const auto& [factor, words] : {std::pair{&rows_, &of_rows}, {&columns_, &of_columns}})
            for (size_t n = 0; n < words->size(); ++n)
                b_.store(word_at(*factor, factor->at[n], term_of(*factor, static_cast<int64_t>(n))),
                         (*words)[n], true);
        b_.barrier(false);
        const Value words = left ? b_.divided_up(left, together()) : b_.index(tile_.terms);
        return b_.loop(b_.index(0), words, halves_ ? 8 : 1, sums,
                       [&](Value k, const Values& state) {
            return halves_ ? multiplied(k, state) : with_products(k, state);
        });
    }

    Values with_products(Value k, const Values& state) {
        Values columns, next;
        for (int64_t v = 0; v < TileSize::kOwnColumns / plan_.vector; ++v)
            columns.push_back(b_.load(word_at(columns_, own_column(v), k), plan_.vector, true));
        const int wide = std::min(plan_.vector, tile_.own_rows);
        for (int64_t r = 0; r < tile_.own_rows; r += wide) {
            const Value rows = b_.load(word_at(rows_, own_row(r), k), wide, true);
            for (int lane = 0; lane < wide; ++lane)
                for (const Value of_column : columns)
                    next.push_back(
                        b_.compute(ScalarOp::fma, {b_.splat(b_.lane(rows, lane), plan_.vector),
                                                   of_column, state[next.size()]}));
        }
        return next;
    }
    // The first column of a vector, within the tile; neighboring threads have neighboring columns.
    Value across() { return b_.index(tile_.columns / TileSize::kOwnColumns); }
    Value own_row(int64_t r) {
        return b_.add(b_.mul(b_.div(thread_, across()), b_.index(tile_.own_rows)), b_.index(r));
    }
    Value own_column(int64_t v) {
        const Value number = b_.add(b_.mod(thread_, across()), b_.mul(across(), b_.index(v)));
        return b_.mul(number, b_.index(plan_.vector));
    }

    // ---- tensor cores: a warp multiplies pieces of 16 rows and 8 columns. Lane 4 g + t has, of
    // rows g and g + 8, and of column g, words t and t + 4; of sums columns 2 t and 2 t + 1 ----
    int64_t pieces_down() const { return std::min(2, tile_.rows / 16); }
    int64_t pieces_across() const { return tile_.own_rows / pieces_down(); }
    Value warps_across() { return b_.index(tile_.columns / (8 * pieces_across())); }
    Value lane_row() { return b_.div(b_.mod(thread_, b_.index(32)), b_.index(4)); }
    Value lane_word() { return b_.mod(thread_, b_.index(4)); }
    Value piece_row(int64_t m) {
        const Value warp = b_.div(b_.div(thread_, b_.index(32)), warps_across());
        return b_.mul(b_.add(b_.mul(warp, b_.index(pieces_down())), b_.index(m)), b_.index(16));
    }
    Value piece_column(int64_t n) {
        const Value warp = b_.mod(b_.div(thread_, b_.index(32)), warps_across());
        return b_.mul(b_.add(b_.mul(warp, b_.index(pieces_across())), b_.index(n)), b_.index(8));
    }

    Values multiplied(Value k, const Values& state) {
        const auto fragment = [&](const Factor& factor, Value first, int64_t halves) {
            Values words;
            for (const int64_t far : {0, 4})
                for (int64_t half = 0; half < halves; ++half) {
                    const Value at = b_.add(b_.add(first, lane_row()), b_.index(8 * half)),
                                term = b_.add(b_.add(k, lane_word()), b_.index(far));
                    words.push_back(
                        b_.bits(Kind::i32, b_.load(word_at(factor, at, term), 1, true)));
                }
            return words;
        };
        std::vector<Values> columns;
        for (int64_t n = 0; n < pieces_across(); ++n)
            columns.push_back(fragment(columns_, piece_column(n), 1));
        Values next;
        for (int64_t m = 0; m < pieces_down(); ++m) {
            const Values rows = fragment(rows_, piece_row(m), 2);
            for (const Values& column : columns) {
                Values args = rows;
                append(args, column);
                args.push_back(state[next.size()]);
                next.push_back(b_.multiply(*halves_, args));
            }
        }
        return next;
    }

    // ---- results ----
    int64_t result_pitch() const { return tile_.columns + kResultPadding; }
    Value result_at(Value row, Value column) {
        return b_.at(results_, b_.add(b_.mul(row, b_.index(result_pitch())), column));
    }

    void keep_sums(const Values& sums) {
        for (size_t s = 0; s < sums.size(); ++s) {
            const auto number = static_cast<int64_t>(s);
            if (!halves_) {
                const int64_t vectors = TileSize::kOwnColumns / plan_.vector;
                b_.store(result_at(own_row(number / vectors), own_column(number % vectors)),
                         sums[s], true);
                continue;
            }
            const Value row = b_.add(piece_row(number / pieces_across()), lane_row()),
                        column = b_.add(piece_column(number % pieces_across()),
                                        b_.mul(lane_word(), b_.index(2)));
            for (int lane = 0; lane < 4; ++lane)
                b_.store(result_at(b_.add(row, b_.index(lane / 2 * 8)),
                                   b_.add(column, b_.index(lane % 2))),
                         b_.lane(sums[s], lane), true);
        }
    }

    void write_results(const Values& bases, const Values& sums) {
        b_.barrier(false);
        keep_sums(sums);
        b_.barrier(false);
        const auto kept = [&](Value element) {
            const Value width = b_.index(tile_.columns);
            return b_.load(result_at(b_.div(element, width), b_.mod(element, width)), 1, true);
        };
        if (plan_.parts == 1)
            return for_elements(
                [&](Value element) { write_result(bases, element, kept(element)); });
        for_elements([&](Value element) {
            b_.store(place_of_part(b_.where(Where::part), element),
                     b_.bits(Kind::i32, kept(element)), false);
        });
        b_.branch(is_last_part(f_, b_.at(f_.tickets, f_.block)), [&] {
            for_elements([&](Value element) {
                const auto part = [&](Value number) {
                    const Value word = b_.load_of_others(place_of_part(number, element));
                    return b_.bits(Kind::f32, word);
                };
                const Values sum =
                    b_.loop(b_.index(1), b_.index(plan_.parts), 1, {part(b_.index(0))},
                            [&](Value number, const Values& state) {
                    return Values{b_.add(state[0], part(number))};
                });
                write_result(bases, element, sum[0]);
            });
        });
    }
    void for_elements(const std::function<void(Value element)>& body) {
        b_.loop(thread_, b_.index(elements()), plan_.threads, {},
                [&](Value element, const Values&) { return body(element), Values(); });
    }
    void write_result(const Values& bases, Value element, Value sum) {
        const Value width = b_.index(tile_.columns),
                    row = b_.add(rows_.first, b_.div(element, width)),
                    column = b_.add(columns_.first, b_.mod(element, width));
        const Value is_there = b_.both(b_.compute(ScalarOp::le, {row, rows_.last}),
                                       b_.compute(ScalarOp::le, {column, columns_.last}));
        b_.branch(is_there, [&] {
            const Values there = f_.gathered(f_.along(bases, rows_.axis, row));
            Values values(static_cast<size_t>(f_.kernel.program.size()));
            f_.evaluate_row(walk_, there, {column}, {}, values);
            f_.evaluate_row(rows_plan_.walks.back(), there, {column}, {sum}, values);
            f_.store(rows_plan_.outputs, there, {column}, values);
        });
    }

    Frame f_;  // for single values
    Builder& b_;
    const GpuPlan& plan_;
    const TileSize& tile_;
    const std::optional<DType> halves_;  // the type that tensor cores multiply
    const RowPlan rows_plan_;
    const RowWalk& walk_;
    const Value thread_;
    Value results_;
    Factor rows_, columns_;
};

}  // namespace

void write_team_tiles(Frame& frame) { TeamTileWriter(frame).write(); }

}  // namespace megjit::codegen::loops
