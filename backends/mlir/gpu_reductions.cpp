// Rows and columns: a team of threads shares one index of the kept axes. Thread `lane` takes pieces
// lane, lane + team,
// ... of the reduced axes, element after element into accumulators of its own, which are merged
// over the team at last.
#include "backends/mlir/gpu_team.h"
#include "backends/mlir/passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::Cover;

// Pieces that a thread adds up in f32 before f64 takes over.
constexpr int64_t kPiecesAtOnce = 512;

class GpuReductionEmitter {
public:
    explicit GpuReductionEmitter(const GpuFrame& gpu)
        : gpu_(gpu),
          b_(gpu.b),
          f_(gpu.b, gpu.kernel, {.width = gpu.plan.vector, .is_aligned = true}, gpu.numbers),
          scalar_(gpu.b, gpu.kernel, {.width = 1}, gpu.numbers),
          team_(gpu, scalar_),
          passes_(plan_passes(gpu.kernel)),
          values_(static_cast<size_t>(gpu.kernel.program.size())) {}

    void emit() {
        if (gpu_.plan.cover == Cover::columns) return emit_column();
        const int kept = gpu_.kernel.kept();
        const Value row = f_.add(f_.mul(gpu_.block, f_.index(gpu_.plan.slots())), team_.slot());
        is_active_ = arith::ConstantOp::create(b_, b_.getBoolAttr(true));
        row_piece_ = {f_.index(0)};
        const auto emit_it = [&] { emit_row(moved_to(f_.bases, 0, kept, row)); };
        if (gpu_.plan.slots() == 1) return emit_it();
        Value rows = f_.index(1);
        for (int axis = 0; axis < kept; ++axis)
            rows = f_.mul(rows, f_.extents[static_cast<size_t>(axis)]);
        f_.branch(f_.less(row, rows),
                  emit_it);  // whole warps: nobody waits for those that have none
    }

private:
    // Threads behind the last column do as if they stood on it, but walk over no element of it and
    // store nothing.
    void emit_column() {
        const int axis = gpu_.kernel.lane_axis();
        const int64_t slots = gpu_.plan.slots();
        const Value columns = f_.extents[static_cast<size_t>(axis)];
        const Value blocks =
            arith::DivUIOp::create(b_, f_.add(columns, f_.index(slots - 1)), f_.index(slots));
        const Value column = f_.add(
            f_.mul(arith::RemUIOp::create(b_, gpu_.block, blocks), f_.index(slots)), team_.slot());
        is_active_ = f_.less(column, columns);
        row_piece_ = {f_.smaller(column, f_.sub(columns, f_.index(1)))};
        emit_row(moved_to(f_.bases, 0, axis, arith::DivUIOp::create(b_, gpu_.block, blocks)));
    }

    Values moved_to(const Values& bases, int first, int last, Value number) {
        const GpuPlace place = place_of(f_, bases, first, last, number);
        return place.last ? f_.along(place.bases, last - 1, place.last) : place.bases;
    }

    void emit_row(const Values& at_row) {
        bases_ = f_.gathered(at_row);
        elements_ = row_elements(f_);
        const int64_t width = gpu_.plan.vector, stride = gpu_.plan.team * width;
        const Value ahead = f_.sub(elements_, f_.mul(team_.lane(), f_.index(width)));
        const Value some =
            arith::MaxSIOp::create(b_, f_.add(ahead, f_.index(stride - 1)), f_.index(0));
        pieces_ = arith::SelectOp::create(
            b_, is_active_, arith::DivUIOp::create(b_, some, f_.index(stride)), f_.index(0));
        for (const Pass& pass : passes_) {
            f_.evaluate(pass.row, bases_, row_piece_, values_);
            if (pass.walks()) emit_pass(pass);
        }
        const SmallVector<size_t> outputs = row_outputs(gpu_.kernel);
        if (outputs.empty()) return;
        team_.barrier();  // an output may lie on an input of the row, which all threads have read
                          // by now
        const Value is_first =
            arith::CmpIOp::create(b_, arith::CmpIPredicate::eq, team_.lane(), f_.index(0));
        f_.branch(arith::AndIOp::create(b_, is_first, is_active_), [&] {
            if (gpu_.plan.cover == Cover::columns)
                return f_.store(outputs, bases_, row_piece_, values_);
            for (const size_t k : outputs) f_.store_lane0(k, bases_, values_);
        });
    }

    // One reducer for each reduction: they share the walk, but are merged one after the other, in
    // little shared memory.
    void emit_pass(const Pass& pass) {
        std::vector<Reducer> reducers;
        for (const int r : pass.reductions) reducers.emplace_back(scalar_, ArrayRef<int>(r));
        Values totals;
        bool loses_digits = false;
        for (Reducer& reducer : reducers) {
            totals.append(reducer.start_total());
            loses_digits = loses_digits || reducer.loses_digits();
        }
        if (loses_digits) {
            totals = f_.loop(f_.index(0), pieces_, kPiecesAtOnce, totals,
                             [&](Value from, const Values& state) {
                return emit_block(pass, reducers, from,
                                  f_.smaller(pieces_, f_.add(from, f_.index(kPiecesAtOnce))),
                                  state);
            });
        } else {
            totals = emit_block(pass, reducers, f_.index(0), pieces_, totals);
        }
        Values results;
        size_t first = 0;
        for (size_t n = 0; n < reducers.size(); ++n) {
            const size_t states = reducers[n].total_states();
            const Values merged = team_.merged(reducers[n], slice(totals, first, states));
            results.push_back(f_.splat(
                vector::ExtractOp::create(b_, reducers[n].results(merged, elements_)[0], 0)));
            first += states;
        }
        set_results(gpu_.kernel, pass, results, values_);
    }

    // Pieces from..to of this thread.
    Values emit_block(const Pass& pass, std::vector<Reducer>& reducers, Value from, Value to,
                      const Values& totals) {
        Values start;
        for (Reducer& reducer : reducers) start.append(reducer.start());
        const Values parts = f_.loop(from, to, 1, start, [&](Value piece, const Values& state) {
            return emit_piece(pass, reducers, piece, f_.sub(piece, from), state);
        });
        const Value count =
            scalar_.splat(f32_of(f_.mul(f_.sub(to, from), f_.index(gpu_.plan.vector))));
        Values next;
        size_t part = 0, total = 0;
        for (Reducer& reducer : reducers) {
            next.append(reducer.absorb(slice(totals, total, reducer.total_states()),
                                       slice(parts, part, reducer.states()), count));
            part += reducer.states();
            total += reducer.total_states();
        }
        return next;
    }

    // `before`: how many pieces the parts hold already.
    Values emit_piece(const Pass& pass, std::vector<Reducer>& reducers, Value piece, Value before,
                      const Values& parts) {
        const int64_t width = gpu_.plan.vector;
        const Value number = f_.add(f_.mul(piece, f_.index(gpu_.plan.team)), team_.lane());
        const Value place = width > 1 ? f_.mul(number, f_.index(width)) : number;
        const int kept = gpu_.kernel.kept(), rank = gpu_.kernel.rank;
        Values bases;
        Piece at = row_piece_;
        if (gpu_.plan.cover == Cover::columns) {
            bases = moved_to(bases_, kept, rank, place);
        } else {
            const GpuPlace there = place_of(f_, bases_, kept, rank, place);
            bases = there.bases;
            at = {there.last};
        }
        Values values = values_;
        f_.evaluate(pass.elements, bases, at, values);
        f_.store(pass.outputs, bases, at, values);
        Values next = parts;
        for (int64_t lane = 0; lane < width && !reducers.empty(); ++lane) {
            const Value count = f32_of(f_.add(f_.mul(before, f_.index(width)), f_.index(lane + 1)));
            const Value one = arith::ConstantOp::create(b_, b_.getF32FloatAttr(1));
            next = emit_step(pass, reducers, lane, values, next,
                             {.share = scalar_.splat(arith::DivFOp::create(b_, one, count)),
                              .place = scalar_.splat(f_.i32_of(f_.add(place, f_.index(lane))))});
        }
        return next;
    }

    // One element: that in `lane` of the values.
    Values emit_step(const Pass& pass, std::vector<Reducer>& reducers, int64_t lane,
                     const Values& values, const Values& parts, const Reducer::Step& step) {
        Values single(values.size()), next;
        size_t first = 0;
        for (size_t n = 0; n < reducers.size(); ++n) {
            const auto arg = static_cast<size_t>(
                gpu_.kernel.reductions[static_cast<size_t>(pass.reductions[n])].arg);
            single[arg] = scalar_.splat(vector::ExtractOp::create(b_, values[arg], lane));
            next.append(reducers[n].step(slice(parts, first, reducers[n].states()), single, step));
            first += reducers[n].states();
        }
        return next;
    }

    static Values slice(const Values& all, size_t first, size_t count) {
        return Values(ArrayRef<Value>(all).slice(first, count));
    }
    Value f32_of(Value number) {
        return arith::SIToFPOp::create(b_, b_.getF32Type(), f_.i32_of(number));
    }

    const GpuFrame& gpu_;
    ImplicitLocOpBuilder& b_;
    Frame f_;  // of vectors
    Frame scalar_;  // of single values
    GpuTeam team_;
    const std::vector<Pass> passes_;
    Values values_;  // per instruction: values of the row so far
    Values bases_;  // of the row
    Piece row_piece_;  // its place on the lane axis
    Value is_active_;  // is there a row for this thread?
    Value elements_;  // of the row
    Value pieces_;  // of them for this thread
};

}  // namespace

void emit_gpu_reductions(const GpuFrame& gpu) { GpuReductionEmitter(gpu).emit(); }

}  // namespace megjit::mlir_backend
