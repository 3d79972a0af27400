// Rows and columns: a team of threads shares one index of the kept axes. Thread `lane` takes pieces
// lane, lane + team,
// ... of the reduced axes: its chains are of kChain of them (codegen/row_plan.h), and it is a lane,
// which is merged with those of the team at last.
#include "backends/mlir/gpu_team.h"
#include "backends/mlir/walks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::Cover;
using codegen::kChain;
using codegen::RowWalk;

class GpuReductionEmitter {
public:
    explicit GpuReductionEmitter(const GpuFrame& gpu)
        : gpu_(gpu),
          b_(gpu.b),
          f_(gpu.b, gpu.kernel, {.width = gpu.plan.vector, .is_aligned = true}, gpu.numbers),
          scalar_(gpu.b, gpu.kernel, {.width = 1}, gpu.numbers),
          team_(gpu, scalar_),
          plan_(codegen::row_plan_of(gpu.kernel)),
          values_(static_cast<size_t>(gpu.kernel.program.size())),
          reduced_(gpu.kernel.reductions.size()) {}

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
        for (const RowWalk& walk : plan_.walks) {
            evaluate_row(f_, walk, bases_, row_piece_, reduced_, values_);
            if (walk.walks()) emit_walk(walk);
        }
        const std::vector<size_t>& outputs = plan_.outputs;
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
    void emit_walk(const RowWalk& walk) {
        std::vector<Reducer> reducers;
        for (const codegen::Reduced& reduced : walk.reductions)
            reducers.emplace_back(scalar_, ArrayRef(reduced));
        Values start;
        for (Reducer& reducer : reducers) start.append(reducer.start_lanes());
        const Values lanes =
            f_.loop(f_.index(0), pieces_, kChain, start, [&](Value from, const Values& state) {
            return emit_chains(walk, reducers, from,
                               f_.smaller(pieces_, f_.add(from, f_.index(kChain))), state);
        });
        size_t first = 0;
        for (size_t n = 0; n < reducers.size(); ++n) {
            const size_t size = reducers[n].lane_values();
            const Values merged = team_.merged(reducers[n], slice(lanes, first, size));
            reduced_[static_cast<size_t>(walk.reductions[n].reduction)] = f_.splat(
                vector::ExtractOp::create(b_, reducers[n].results(merged, elements_)[0], 0));
            first += size;
        }
    }

    // Pieces from..to of this thread.
    Values emit_chains(const RowWalk& walk, std::vector<Reducer>& reducers, Value from, Value to,
                       const Values& lanes) {
        Values state;
        for (Reducer& reducer : reducers) state.append(reducer.start_chains());
        const size_t chains = state.size();
        state.append(lanes);
        state = f_.loop(from, to, 1, state, [&](Value piece, const Values& own) {
            return emit_piece(walk, reducers, piece, chains, own);
        });
        Values next;
        size_t chain = 0, lane = chains;
        for (Reducer& reducer : reducers) {
            const size_t size = reducer.chain_values(), all = reducer.lane_values();
            next.append(reducer.with_chains(slice(state, lane, all), slice(state, chain, size)));
            chain += size;
            lane += all;
        }
        return next;
    }

    // `state`: the chains of all reducers, then their lanes.
    Values emit_piece(const RowWalk& walk, std::vector<Reducer>& reducers, Value piece,
                      size_t chains, const Values& state) {
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
        f_.evaluate(walk.elements, bases, at, values);
        f_.store(walk.outputs, bases, at, values);
        Values next = state;
        for (int64_t k = 0; k < width && !reducers.empty(); ++k)
            next = emit_step(walk, reducers, k, values, chains, next,
                             {.place = scalar_.splat(f_.i32_of(f_.add(place, f_.index(k))))});
        return next;
    }

    // One element: number k of the values.
    Values emit_step(const RowWalk& walk, std::vector<Reducer>& reducers, int64_t k,
                     const Values& values, size_t chains, const Values& state,
                     const Reducer::Step& step) {
        Values single(values.size()), of_chains, of_lanes;
        size_t chain = 0, lane = chains;
        for (size_t n = 0; n < reducers.size(); ++n) {
            const auto arg = static_cast<size_t>(walk.reductions[n].arg);
            single[arg] = scalar_.splat(vector::ExtractOp::create(b_, values[arg], k));
            Values own_chains = slice(state, chain, reducers[n].chain_values()),
                   own_lanes = slice(state, lane, reducers[n].lane_values());
            chain += own_chains.size();
            lane += own_lanes.size();
            reducers[n].take(own_chains, own_lanes, single, step);
            of_chains.append(own_chains);
            of_lanes.append(own_lanes);
        }
        of_chains.append(of_lanes);
        return of_chains;
    }

    static Values slice(const Values& all, size_t first, size_t count) {
        return Values(ArrayRef<Value>(all).slice(first, count));
    }
    const GpuFrame& gpu_;
    ImplicitLocOpBuilder& b_;
    Frame f_;  // of vectors
    Frame scalar_;  // of single values
    GpuTeam team_;
    const codegen::RowPlan plan_;
    Values values_;  // per instruction: values of the row so far
    Values reduced_;  // per reduction: its result, once it is known
    Values bases_;  // of the row
    Piece row_piece_;  // its place on the lane axis
    Value is_active_;  // is there a row for this thread?
    Value elements_;  // of the row
    Value pieces_;  // of them for this thread
};

}  // namespace

void emit_gpu_reductions(const GpuFrame& gpu) { GpuReductionEmitter(gpu).emit(); }

}  // namespace megjit::mlir_backend
