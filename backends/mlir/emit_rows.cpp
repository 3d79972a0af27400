// Rows, lanes over the last axis: a unit is one index of the kept axes. Values of a row are vectors
// whose lanes are all alike.
//
// A run along the last axis is accumulated by a loop over several vectors at once, each with
// accumulators of its own, so that additions need not wait for each other, and a loop over single
// masked vectors for the rest. Bodies that are long stand there once: they have enough to do
// between two additions.
#include "backends/mlir/emit.h"
#include "backends/mlir/passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;

// Elements of a row that are added up in f32 before f64 takes over; a multiple of all vectors of
// one step.
constexpr int64_t kRowBlock = 8192;

// One part of the elements of a run, and how many each of its lanes holds.
struct Part {
    Values states;
    Value count;  // i64, if the reductions count
};

class RowEmitter {
public:
    explicit RowEmitter(Frame& frame)
        : f_(frame), b_(frame.b), passes_(plan_passes(frame.kernel)) {}

    void emit() {
        std::vector<UnitAxis> axes;
        for (size_t axis = 0; axis < static_cast<size_t>(f_.kernel.kept()); ++axis) {
            axes.push_back({f_.extents[axis], {}});
            for (const Values& own : f_.strides) axes.back().strides.push_back(own[axis]);
        }
        for_units(f_, axes,
                  [&](Value, Value, const Values& bases) { emit_row(f_.gathered(bases)); });
    }

private:
    void emit_row(const Values& bases) {
        values_.assign(static_cast<size_t>(f_.kernel.program.size()), Value());
        for (const Pass& pass : passes_) {
            f_.evaluate(pass.row, bases, {f_.index(0)}, values_);
            if (!pass.walks()) continue;
            Reducer reducer(f_, pass.reductions);
            const int64_t block = reducer.loses_digits() ? kRowBlock : 0;
            const Values totals = for_runs(f_, bases, block, reducer.start_total(),
                                           [&](const Run& run, const Values& state) {
                return emit_run(pass, reducer, run, state);
            });
            if (!pass.reductions.empty())
                set_results(f_.kernel, pass,
                            reducer.results(reducer.fold(totals), row_elements(f_)), values_);
        }
        for (const size_t k : row_outputs(f_.kernel)) f_.store_lane0(k, bases, values_);
    }

    // Vectors of one step of the loop.
    static int64_t vectors_of(const Pass& pass) {
        if (pass.elements.size() > 20) return 0;  // none: all goes the way of the rest
        return pass.elements.size() <= 8 ? 4 : 2;
    }

    Values emit_run(const Pass& pass, Reducer& reducer, const Run& run, const Values& totals) {
        const int64_t vectors = vectors_of(pass);
        Part part{reducer.start(), f_.index(0)};
        Value rest = run.from;
        if (vectors > 0) part = emit_whole(pass, reducer, run, vectors, rest);
        const int64_t width = f_.target.width;
        const Values states =
            f_.loop(rest, run.to, width, part.states, [&](Value at, const Values& state) {
            const Value ahead = f_.sub(run.to, at);
            const Piece piece = vectors > 0 ? f_.partial(at, f_.smaller(ahead, f_.index(width)))
                                            : f_.either(at, ahead);
            return emit_piece(pass, reducer, run, piece, state,
                              f_.add(part.count, vectors_in(f_.sub(at, rest), f_.index(width))));
        });
        if (pass.reductions.empty()) return {};
        return reducer.absorb(
            totals, states,
            reducer.counts() ? f32_of(lane_counts(part.count, f_.sub(run.to, rest))) : Value());
    }

    // As many steps as there are; `rest` becomes where they end.
    Part emit_whole(const Pass& pass, Reducer& reducer, const Run& run, int64_t vectors,
                    Value& rest) {
        const int64_t width = f_.target.width, step = vectors * width;
        const Value steps = vectors_in(f_.sub(run.to, run.from), f_.index(step));
        rest = f_.add(run.from, f_.mul(steps, f_.index(step)));
        Values start;
        for (int64_t v = 0; v < vectors; ++v) start.append(reducer.start());
        const size_t size = start.size() / static_cast<size_t>(vectors);
        const auto states_of = [&](const Values& all, int64_t v) {
            return Values(ArrayRef<Value>(all).slice(static_cast<size_t>(v) * size, size));
        };
        const Values end = f_.loop(run.from, rest, step, start, [&](Value at, const Values& state) {
            const Value before = vectors_in(f_.sub(at, run.from), f_.index(step));
            Values next;
            for (int64_t v = 0; v < vectors; ++v)
                next.append(emit_piece(pass, reducer, run, {f_.add(at, f_.index(v * width))},
                                       states_of(state, v), before));
            return next;
        });
        std::vector<Values> parts;
        for (int64_t v = 0; v < vectors; ++v) parts.push_back(states_of(end, v));
        Value count = steps;
        for (; parts.size() > 1; count = f_.add(count, count)) {
            const Value lanes = reducer.counts() ? f32_of(f_.splat(f_.i32_of(count))) : Value();
            for (size_t v = 0; v < parts.size() / 2; ++v)
                parts[v] = reducer.merge(parts[2 * v], lanes, parts[2 * v + 1], lanes);
            parts.resize(parts.size() / 2);
        }
        return {parts[0], count};
    }

    // `before`: how many elements each lane of the part holds already.
    Values emit_piece(const Pass& pass, Reducer& reducer, const Run& run, const Piece& piece,
                      const Values& states, Value before) {
        Values values = values_;
        f_.evaluate(pass.elements, run.bases, piece, values);
        f_.store(pass.outputs, run.bases, piece, values);
        Reducer::Step step{.mask = f_.mask_of(piece)};
        if (reducer.needs_places())
            step.place =
                f_.add(f_.splat(f_.i32_of(f_.add(run.place, piece.at))), f_.lanes(b_.getI32Type()));
        if (reducer.counts()) {
            const Value count = arith::SIToFPOp::create(b_, b_.getF32Type(),
                                                        f_.i32_of(f_.add(before, f_.index(1))));
            step.share = f_.splat(arith::DivFOp::create(
                b_, arith::ConstantOp::create(b_, b_.getF32FloatAttr(1)), count));
        }
        return reducer.step(states, values, step);
    }

    Value vectors_in(Value elements, Value width) {
        return arith::DivUIOp::create(b_, elements, width);
    }
    Value f32_of(Value lanes) {
        return arith::SIToFPOp::create(b_, f_.scalars.vector_of(b_.getF32Type()), lanes);
    }

    // Per lane: `count` elements, and those of the last `rest` of a run that fall to it.
    Value lane_counts(Value count, Value rest) {
        const int32_t width = f_.target.width;
        const auto number = [&](int32_t value) {
            return f_.scalars.constant(runtime::ScalarType::i32, static_cast<uint32_t>(value));
        };
        const Value reach =
            f_.sub(f_.add(f_.splat(f_.i32_of(rest)), number(width - 1)), f_.lanes(b_.getI32Type()));
        return f_.add(f_.splat(f_.i32_of(count)), arith::DivUIOp::create(b_, reach, number(width)));
    }

    Frame& f_;
    ImplicitLocOpBuilder& b_;
    const std::vector<Pass> passes_;
    Values values_;  // per instruction: values of the row so far
};

}  // namespace

void emit_rows(Frame& frame) { RowEmitter(frame).emit(); }

}  // namespace megjit::mlir_backend
