// Columns, lanes over the last kept axis: a unit is a block of kColumnBlock columns, or what is left of them. Groups of several
// vectors walk down the reduced axes together, so that additions need not wait for each other; the rest goes vector by vector.
// What wider groups cannot change is the order of additions within a column.
#include "backends/mlir/emit.h"
#include "backends/mlir/passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::kColumnBlock;

// Rows that are added up in f32 before f64 takes over.
constexpr int64_t kRowsAtOnce = 512;

using Pieces = std::vector<Piece>;

class ColumnEmitter {
public:
    explicit ColumnEmitter(Frame& frame) : f_(frame), b_(frame.b), lane_axis_(frame.kernel.lane_axis()), passes_(plan_passes(frame.kernel)) {
        for (const Pass& pass : passes_) longest_ = std::max(longest_, pass.elements.size());
        group_ = longest_ <= 40 ? 4 : 1;
    }

    void emit() {
        std::vector<UnitAxis> axes;
        for (int axis = 0; axis <= lane_axis_; ++axis) {
            const auto a = static_cast<size_t>(axis);
            axes.push_back({f_.extents[a], {}});
            for (const Values& own : f_.strides) axes.back().strides.push_back(own[a]);
        }
        const Value columns = axes.back().extent, block = f_.index(kColumnBlock);
        axes.back().extent = arith::DivUIOp::create(b_, f_.add(columns, f_.index(kColumnBlock - 1)), block);
        for (Value& stride : axes.back().strides) stride = f_.mul(stride, block);
        for_units(f_, axes, [&](Value unit, Value number, const Values& start) {
            const Values bases = f_.gathered(start);
            const auto alone = [&] {
                emit_block(bases, f_.smaller(block, f_.sub(columns, f_.mul(number, block))));
                return Values();
            };
            if (is_cheap()) f_.choose(is_in_a_broad_one(unit, number, columns), {}, [&] { return emit_broad(bases, number); }, alone);
            else alone();
        });
    }

private:
    // Where memory is all that there is to wait for, kBroad blocks walk as one: a row of 64 columns is too short for the CPU to
    // fetch it ahead. (Sums of 16 to 64 MB took half the time.)
    static constexpr int64_t kBroad = 4;
    bool is_cheap() const {
        using codegen::Reduce;
        if (f_.target.width * 4 < kColumnBlock || f_.kernel.reductions.size() != 1) return false;  // or registers would not do
        const Reduce kind = f_.kernel.reductions[0].kind;
        return kind != Reduce::variance && kind != Reduce::argmax && kind != Reduce::argmin && longest_ <= 3;
    }

    // Blocks kBroad * n, ... of a run of columns do so if they are whole, and all here.
    Value is_in_a_broad_one(Value unit, Value number, Value columns) {
        const Value place = arith::AndIOp::create(b_, number, f_.index(kBroad - 1)), first = f_.sub(unit, place);
        const auto at_most = [&](Value a, Value c) -> Value { return arith::CmpIOp::create(b_, arith::CmpIPredicate::sle, a, c); };
        const Value are_whole = at_most(f_.mul(f_.add(f_.sub(number, place), f_.index(kBroad)), f_.index(kColumnBlock)), columns);
        const Value are_here = arith::AndIOp::create(b_, at_most(f_.lo, first), at_most(f_.add(first, f_.index(kBroad)), f_.hi));
        return arith::AndIOp::create(b_, are_whole, are_here);
    }

    Values emit_broad(const Values& bases, Value number) {
        const Value place = arith::AndIOp::create(b_, number, f_.index(kBroad - 1));
        f_.branch(arith::CmpIOp::create(b_, arith::CmpIPredicate::eq, place, f_.index(0)), [&] {
            Pieces pieces;
            for (int64_t at = 0; at < kBroad * kColumnBlock; at += f_.target.width) pieces.push_back({f_.index(at)});
            emit_group(bases, pieces);
        });
        return {};
    }

    void emit_block(const Values& bases, Value columns) {
        const int64_t width = f_.target.width;
        Value rest = f_.index(0);
        if (group_ > 1) {
            const Value step = f_.index(group_ * width);
            rest = f_.mul(arith::DivUIOp::create(b_, columns, step), step);
            f_.loop(f_.index(0), rest, group_ * width, {}, [&](Value at, const Values&) {
                Pieces pieces;
                for (int64_t v = 0; v < group_; ++v) pieces.push_back({f_.add(at, f_.index(v * width))});
                return emit_group(bases, pieces);
            });
        }
        f_.loop(rest, columns, width, {}, [&](Value at, const Values&) { return emit_group(bases, {f_.either(at, f_.sub(columns, at))}); });
    }

    Values emit_group(const Values& bases, const Pieces& pieces) {
        values_.assign(pieces.size(), Values(static_cast<size_t>(f_.kernel.program.size())));
        for (const Pass& pass : passes_) {
            for (size_t v = 0; v < pieces.size(); ++v) f_.evaluate(pass.row, bases, pieces[v], values_[v]);
            if (pass.walks()) emit_pass(pass, bases, pieces);
        }
        for (size_t v = 0; v < pieces.size(); ++v) f_.store(row_outputs(f_.kernel), bases, pieces[v], values_[v]);
        return {};
    }

    // The states of all vectors stand side by side.
    void emit_pass(const Pass& pass, const Values& bases, const Pieces& pieces) {
        Reducer reducer(f_, pass.reductions);
        Values start;
        for (size_t v = 0; v < pieces.size(); ++v) start.append(reducer.start_total());
        const Values totals = for_runs(f_, bases, reducer.loses_digits() ? kRowsAtOnce : 0, start, [&](const Run& run, const Values& state) {
            return emit_run(pass, reducer, run, pieces, state);
        });
        if (pass.reductions.empty()) return;
        const Value elements = row_elements(f_);
        for (size_t v = 0; v < pieces.size(); ++v)
            set_results(f_.kernel, pass, reducer.results(part_of(totals, v, pieces.size()), elements), values_[v]);
    }

    Values emit_run(const Pass& pass, Reducer& reducer, const Run& run, const Pieces& pieces, const Values& totals) {
        Values start;
        for (size_t v = 0; v < pieces.size(); ++v) start.append(reducer.start());
        const Values end = f_.loop(run.from, run.to, 1, start, [&](Value row, const Values& state) {
            return emit_elements(pass, reducer, run, row, pieces, state);
        });
        const Value count = reducer.counts() ? f_.splat(f32_of(f_.sub(run.to, run.from))) : Value();
        Values next;
        for (size_t v = 0; v < pieces.size(); ++v)
            next.append(reducer.absorb(part_of(totals, v, pieces.size()), part_of(end, v, pieces.size()), count));
        return next;
    }

    Values emit_elements(const Pass& pass, Reducer& reducer, const Run& run, Value row, const Pieces& pieces, const Values& states) {
        const Values bases = f_.along(run.bases, f_.kernel.rank - 1, row);
        std::vector<Values> values = values_;
        for (size_t v = 0; v < pieces.size(); ++v) f_.evaluate(pass.elements, bases, pieces[v], values[v]);
        Reducer::Step step;  // lanes that take no part compute what nobody stores
        if (reducer.needs_places()) step.place = f_.splat(f_.i32_of(f_.add(run.place, row)));
        if (reducer.counts()) {
            const Value count = f32_of(f_.add(f_.sub(row, run.from), f_.index(1)));
            step.share = f_.splat(arith::DivFOp::create(b_, arith::ConstantOp::create(b_, b_.getF32FloatAttr(1)), count));
        }
        Values next;
        for (size_t v = 0; v < pieces.size(); ++v) {
            f_.store(pass.outputs, bases, pieces[v], values[v]);
            next.append(reducer.step(part_of(states, v, pieces.size()), values[v], step));
        }
        return next;
    }

    static Values part_of(const Values& all, size_t v, size_t parts) {
        const size_t size = all.size() / parts;
        return Values(ArrayRef<Value>(all).slice(v * size, size));
    }

    Value f32_of(Value number) { return arith::SIToFPOp::create(b_, b_.getF32Type(), f_.i32_of(number)); }

    Frame& f_;
    ImplicitLocOpBuilder& b_;
    const int lane_axis_;
    const std::vector<Pass> passes_;
    size_t longest_ = 0;          // pass, in instructions
    int64_t group_ = 1;           // vectors that walk together
    std::vector<Values> values_;  // per vector of the group and instruction: values of its columns so far
};

}  // namespace

void emit_columns(Frame& frame) { ColumnEmitter(frame).emit(); }

}  // namespace megjit::mlir_backend
