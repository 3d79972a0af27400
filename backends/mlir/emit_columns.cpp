// Columns, lanes over the last kept axis: a unit is a block of kColumnBlock columns, or what is
// left of them. A walk goes down the reduced axes row by row, several rows at once in short bodies,
// and along each row vector by vector over all columns at hand. So memory is read in its order, and
// every body stands there once; accumulators and values of columns lie on the stack.
//
// The first of some neighboring units walks for all of them: a row of 64 columns is too short for
// the CPU to fetch it ahead. (Sums of 16 to 64 MB took twice the time.) No column depends on its
// neighbors, so this changes no bits.
#include "backends/mlir/emit.h"
#include "backends/mlir/passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::kColumnBlock;
using runtime::ScalarOp;

// Rows that are added up in f32 before f64 takes over.
constexpr int64_t kRowsAtOnce = 512;
// Units that walk together: their accumulators stay in the L1 cache; what several passes read, in
// the L2 cache.
constexpr int64_t kMostTogether = 16, kStackBytes = 16384, kCachedElements = int64_t{1} << 17;

class ColumnEmitter {
public:
    explicit ColumnEmitter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          passes_(plan_passes(frame.kernel)),
          slots_(static_cast<size_t>(frame.kernel.program.size())) {
        int64_t bytes = 0;  // of the stack, for each column
        for (const Pass& pass : passes_)
            bytes += 24 * static_cast<int64_t>(pass.reductions.size()) +
                     4 * static_cast<int64_t>(pass.row.size());
        together_ = std::clamp<int64_t>(kStackBytes / std::max<int64_t>(bytes * kColumnBlock, 1), 1,
                                        kMostTogether);
    }

    void emit() {
        std::vector<UnitAxis> axes;
        for (size_t axis = 0; axis < static_cast<size_t>(f_.kernel.kept()); ++axis) {
            axes.push_back({f_.extents[axis], {}});
            for (const Values& own : f_.strides) axes.back().strides.push_back(own[axis]);
        }
        const Value columns = axes.back().extent, block = f_.index(kColumnBlock);
        const Value blocks =
            arith::DivUIOp::create(b_, f_.add(columns, f_.index(kColumnBlock - 1)), block);
        axes.back().extent = blocks;
        for (Value& stride : axes.back().strides) stride = f_.mul(stride, block);
        const Value most = units_together();
        for_units(f_, axes, [&](Value unit, Value number, const Values& bases) {
            const Value place = arith::RemUIOp::create(b_, number, most);
            f_.branch(arith::OrIOp::create(b_, f_.equal(place, f_.index(0)), f_.equal(unit, f_.lo)),
                      [&] {
                const Value here = f_.smaller(f_.sub(f_.hi, unit), f_.sub(blocks, number)),
                            together = f_.smaller(f_.sub(most, place), here);
                columns_ =
                    f_.smaller(f_.mul(together, block), f_.sub(columns, f_.mul(number, block)));
                emit_columns(f_.gathered(bases));
            });
        });
    }

private:
    // One vector on the stack for each vector of columns.
    struct Slot {
        Value memory;
        VectorType type;
    };

    Value units_together() {
        const auto walks = std::count_if(passes_.begin(), passes_.end(),
                                         [](const Pass& pass) { return pass.walks(); });
        if (walks < 2) return f_.index(together_);
        const Value rows = arith::MaxSIOp::create(b_, row_elements(f_), f_.index(1));
        const Value cached =
            arith::DivUIOp::create(b_, f_.index(kCachedElements / kColumnBlock), rows);
        return f_.smaller(f_.index(together_), arith::MaxSIOp::create(b_, cached, f_.index(1)));
    }

    void emit_columns(const Values& bases) {
        for (size_t p = 0; p < passes_.size(); ++p) {
            for_vectors([&](Value v, const Piece& piece) { emit_between(p, bases, v, piece); });
            if (passes_[p].walks()) emit_walk(passes_[p], bases);
        }
    }

    void for_vectors(const std::function<void(Value v, const Piece& piece)>& body) {
        const Value width = f_.index(f_.target.width);
        const Value vectors =
            arith::DivUIOp::create(b_, f_.add(columns_, f_.index(f_.target.width - 1)), width);
        f_.loop(f_.index(0), vectors, 1, {}, [&](Value v, const Values&) {
            const Value at = f_.mul(v, width);
            body(v, f_.either(at, f_.sub(columns_, at)));
            return Values();
        });
    }

    // Before pass p: the results of the pass before, and the values of columns that they make
    // known.
    void emit_between(size_t p, const Values& bases, Value v, const Piece& piece) {
        const Pass& pass = passes_[p];
        Values values = known_values(v);
        if (p > 0 && !passes_[p - 1].reductions.empty()) {
            Reducer before(f_, passes_[p - 1].reductions);
            set_results(f_.kernel, passes_[p - 1],
                        before.results(load(totals_, v), row_elements(f_)), values);
        }
        f_.evaluate(pass.row, bases, piece, values);
        remember(v, values);
        if (p + 1 == passes_.size()) return f_.store(row_outputs(f_.kernel), bases, piece, values);
        const Values start = Reducer(f_, pass.reductions).start_total();
        totals_ = slots_for(start);
        store(totals_, v, start);
    }

    // Sums are accumulated by parts; whatever loses no digits right in the totals.
    void emit_walk(const Pass& pass, const Values& bases) {
        Reducer reducer(f_, pass.reductions);
        const bool by_parts = reducer.loses_digits();
        const std::vector<Slot> states = by_parts ? slots_for(reducer.start()) : totals_;
        for_runs(f_, bases, by_parts ? kRowsAtOnce : 0, {}, [&](const Run& run, const Values&) {
            if (by_parts)
                for_vectors([&](Value v, const Piece&) { store(states, v, reducer.start()); });
            emit_run(pass, reducer, run, states);
            if (!by_parts) return Values();
            const Value count =
                reducer.counts() ? f_.splat(f32_of(f_.sub(run.to, run.from))) : Value();
            for_vectors([&](Value v, const Piece&) {
                store(totals_, v, reducer.absorb(load(totals_, v), load(states, v), count));
            });
            return Values();
        });
    }

    // Several rows at a time make up for the way through memory that accumulators take.
    void emit_run(const Pass& pass, Reducer& reducer, const Run& run,
                  const std::vector<Slot>& states) {
        const int64_t rows = pass.reductions.empty() || pass.elements.size() > 20 ? 1
                             : pass.elements.size() > 4                           ? 2
                                                                                  : 4;
        Value rest = run.from;
        const auto emit = [&](int64_t step) {
            return [&, step](Value row, const Values&) {
                emit_rows(pass, reducer, run, row, step, states);
                return Values();
            };
        };
        if (rows > 1) {
            const Value steps =
                arith::DivUIOp::create(b_, f_.sub(run.to, run.from), f_.index(rows));
            rest = f_.add(run.from, f_.mul(steps, f_.index(rows)));
            f_.loop(run.from, rest, rows, {}, emit(rows));
        }
        f_.loop(rest, run.to, 1, {}, emit(1));
    }

    void emit_rows(const Pass& pass, Reducer& reducer, const Run& run, Value first, int64_t rows,
                   const std::vector<Slot>& states) {
        std::vector<Values> bases;
        std::vector<Reducer::Step> steps(
            static_cast<size_t>(rows));  // lanes that take no part compute what nobody stores
        for (size_t r = 0; r < steps.size(); ++r) {
            const Value row = f_.add(first, f_.index(static_cast<int64_t>(r)));
            bases.push_back(f_.along(run.bases, f_.kernel.rank - 1, row));
            if (reducer.needs_places())
                steps[r].place = f_.splat(f_.i32_of(f_.add(run.place, row)));
            if (!reducer.counts()) continue;
            const Value count = f32_of(f_.add(f_.sub(row, run.from), f_.index(1)));
            steps[r].share = f_.splat(arith::DivFOp::create(
                b_, arith::ConstantOp::create(b_, b_.getF32FloatAttr(1)), count));
        }
        for_vectors([&](Value v, const Piece& piece) {
            std::vector<Values> values(steps.size(), known_values(v));
            f_.evaluate(pass.elements, bases, piece, values);
            Values state = load(states, v);
            for (size_t r = 0; r < steps.size(); ++r) {
                f_.store(pass.outputs, bases[r], piece, values[r]);
                state = reducer.step(state, values[r], steps[r]);
            }
            store(states, v, state);
        });
    }

    Value f32_of(Value number) {
        return arith::SIToFPOp::create(b_, b_.getF32Type(), f_.i32_of(number));
    }

    // ---- the stack
    // -------------------------------------------------------------------------------
    Slot slot_for(Type type) {
        const auto lanes = cast<VectorType>(type);
        return {f_.room(lanes, together_ * kColumnBlock / f_.target.width), lanes};
    }
    std::vector<Slot> slots_for(const Values& values) {
        std::vector<Slot> slots;
        for (const Value value : values) slots.push_back(slot_for(value.getType()));
        return slots;
    }
    Values load(const std::vector<Slot>& slots, Value v) {
        Values values;
        for (const Slot& slot : slots) values.push_back(f_.load_from(slot.memory, slot.type, v));
        return values;
    }
    void store(const std::vector<Slot>& slots, Value v, const Values& values) {
        for (size_t s = 0; s < slots.size(); ++s) f_.store_to(slots[s].memory, v, values[s]);
    }

    // Per instruction, if it has one value a column that is known by now.
    Values known_values(Value v) {
        Values values(slots_.size());
        for (size_t id = 0; id < slots_.size(); ++id) {
            const runtime::ScalarInst& inst = f_.kernel.program[static_cast<int>(id)];
            if (inst.op == ScalarOp::constant)
                values[id] = f_.scalars.constant(inst.type, inst.bits);
            else if (slots_[id].memory)
                values[id] = f_.load_from(slots_[id].memory, slots_[id].type, v);
        }
        return values;
    }
    void remember(Value v, const Values& values) {
        for (size_t id = 0; id < slots_.size(); ++id) {
            if (!values[id] || slots_[id].memory ||
                f_.kernel.program[static_cast<int>(id)].op == ScalarOp::constant)
                continue;
            slots_[id] = slot_for(values[id].getType());
            f_.store_to(slots_[id].memory, v, values[id]);
        }
    }

    Frame& f_;
    ImplicitLocOpBuilder& b_;
    const std::vector<Pass> passes_;
    int64_t together_ = 1;  // units at most
    Value columns_;  // of the units at hand
    std::vector<Slot> slots_;  // per instruction: its values of columns, once they are known
    std::vector<Slot> totals_;  // of the pass at hand
};

}  // namespace

void emit_columns(Frame& frame) { ColumnEmitter(frame).emit(); }

}  // namespace megjit::mlir_backend
