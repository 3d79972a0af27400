// Columns, lanes over the last kept axis: a unit is a block of kColumnBlock columns, or what is
// left of them. A walk goes down the reduced axes by groups of rows, a chain in each column
// (codegen/row_plan.h), and along each group vector by vector over all columns at hand. So memory
// is read in its order; lanes and values of columns lie on the stack, chains in registers. Short
// bodies stand there once for each row of a group, others once.
//
// The first of some neighboring units walks for all of them: a row of 64 columns is too short for
// the CPU to fetch it ahead. (Sums of 16 to 64 MB took twice the time.) No column depends on its
// neighbors, so this changes no bits.
#include "backends/mlir/emit.h"
#include "backends/mlir/walks.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::kChain;
using codegen::kColumnBlock;
using codegen::RowWalk;
using runtime::ScalarOp;

// Units that walk together: their accumulators stay in the L1 cache; what several walks read, in
// the L2 cache.
constexpr int64_t kMostTogether = 16, kStackBytes = 16384, kCachedElements = int64_t{1} << 17;

class ColumnEmitter {
public:
    explicit ColumnEmitter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          plan_(codegen::row_plan_of(frame.kernel)),
          slots_(static_cast<size_t>(frame.kernel.program.size())) {
        int64_t bytes = 0;  // of the stack, for each column
        for (const RowWalk& walk : plan_.walks)
            bytes += 16 * static_cast<int64_t>(walk.reductions.size()) +
                     4 * static_cast<int64_t>(walk.row.size());
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
        const auto walks = std::count_if(plan_.walks.begin(), plan_.walks.end(),
                                         [](const RowWalk& walk) { return walk.walks(); });
        if (walks < 2) return f_.index(together_);
        const Value rows = arith::MaxSIOp::create(b_, row_elements(f_), f_.index(1));
        const Value cached =
            arith::DivUIOp::create(b_, f_.index(kCachedElements / kColumnBlock), rows);
        return f_.smaller(f_.index(together_), arith::MaxSIOp::create(b_, cached, f_.index(1)));
    }

    void emit_columns(const Values& bases) {
        const RowWalk* before = nullptr;
        for (const RowWalk& walk : plan_.walks) {
            for_vectors(
                [&](Value v, const Piece& piece) { emit_between(before, walk, bases, v, piece); });
            if (walk.walks()) emit_walk(walk, bases);
            before = &walk;
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

    // Before a walk: the results of the one before, and the values of columns that they make known.
    void emit_between(const RowWalk* before, const RowWalk& walk, const Values& bases, Value v,
                      const Piece& piece) {
        Values values = known_values(v), reduced(f_.kernel.reductions.size());
        if (before && !before->reductions.empty()) {
            const Values results =
                Reducer(f_, before->reductions).results(load(totals_, v), row_elements(f_));
            for (size_t r = 0; r < results.size(); ++r)
                reduced[static_cast<size_t>(before->reductions[r].reduction)] = results[r];
        }
        evaluate_row(f_, walk, bases, piece, reduced, values);
        remember(v, values);
        if (&walk == &plan_.walks.back()) return f_.store(plan_.outputs, bases, piece, values);
        const Values start = Reducer(f_, walk.reductions).start_lanes();
        totals_ = slots_for(start);
        store(totals_, v, start);
    }

    void emit_walk(const RowWalk& walk, const Values& bases) {
        Reducer reducer(f_, walk.reductions);
        for_runs(f_, bases, {}, [&](const Run& run, const Values&) {
            if (walk.reductions.empty())
                return f_.loop(f_.index(0), run.length, 1, {}, [&](Value row, const Values&) {
                    const std::vector<Values> there = rows_from(run, row, 1);
                    for_vectors(
                        [&](Value v, const Piece& piece) { emit_elements(walk, there, v, piece); });
                    return Values();
                });
            Value rest = f_.index(0);
            if (walk.is_short()) {
                rest = f_.sub(run.length, arith::RemUIOp::create(b_, run.length, f_.index(kChain)));
                f_.loop(f_.index(0), rest, kChain, {}, [&](Value first, const Values&) {
                    const std::vector<Values> there = rows_from(run, first, kChain);
                    for_vectors([&](Value v, const Piece& piece) {
                        emit_group(walk, reducer, run, first, there, v, piece);
                    });
                    return Values();
                });
            }
            return f_.loop(rest, run.length, kChain, {}, [&](Value first, const Values&) {
                const Value end = f_.smaller(run.length, f_.add(first, f_.index(kChain)));
                for_vectors([&](Value v, const Piece& piece) {
                    emit_group_by_loop(walk, reducer, run, first, end, v, piece);
                });
                return Values();
            });
        });
    }

    std::vector<Values> rows_from(const Run& run, Value first, int64_t rows) {
        std::vector<Values> bases;
        for (int64_t r = 0; r < rows; ++r)
            bases.push_back(f_.along(run.bases, f_.kernel.rank - 1, f_.add(first, f_.index(r))));
        return bases;
    }

    // A whole group from row `first` on.
    void emit_group(const RowWalk& walk, Reducer& reducer, const Run& run, Value first,
                    const std::vector<Values>& bases, Value v, const Piece& piece) {
        const std::vector<Values> values = emit_elements(walk, bases, v, piece);
        Values chains = reducer.start_chains(), lanes = load(totals_, v);
        for (int64_t k = 0; k < kChain; ++k)
            take(reducer, run, f_.add(first, f_.index(k)), values[static_cast<size_t>(k)], chains,
                 lanes);
        store(totals_, v, reducer.with_chains(lanes, chains));
    }

    // Rows first..end, of one group.
    void emit_group_by_loop(const RowWalk& walk, Reducer& reducer, const Run& run, Value first,
                            Value end, Value v, const Piece& piece) {
        Values state = reducer.start_chains();
        const auto size = static_cast<ptrdiff_t>(state.size());
        state.append(load(totals_, v));
        const auto split = [&](const Values& all) {
            return std::pair(Values(all.begin(), all.begin() + size),
                             Values(all.begin() + size, all.end()));
        };
        state = f_.loop(first, end, 1, state, [&](Value row, const Values& own) {
            auto [chains, lanes] = split(own);
            take(reducer, run, row, emit_elements(walk, rows_from(run, row, 1), v, piece)[0],
                 chains, lanes);
            chains.append(lanes);
            return chains;
        });
        const auto [chains, lanes] = split(state);
        store(totals_, v, reducer.with_chains(lanes, chains));
    }

    // The elements of one vector of columns in some rows, all read before any is written.
    std::vector<Values> emit_elements(const RowWalk& walk, const std::vector<Values>& bases,
                                      Value v, const Piece& piece) {
        std::vector<Values> values(bases.size(), known_values(v));
        f_.evaluate(walk.elements, bases, piece, values);
        for (size_t r = 0; r < bases.size(); ++r)
            f_.store(walk.outputs, bases[r], piece, values[r]);
        return values;
    }

    void take(Reducer& reducer, const Run& run, Value row, const Values& values, Values& chains,
              Values& lanes) {
        Reducer::Step step;  // lanes that take no part compute what nobody stores
        if (reducer.needs_places()) step.place = f_.splat(f_.i32_of(f_.add(run.place, row)));
        reducer.take(chains, lanes, values, step);
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
    const codegen::RowPlan plan_;
    int64_t together_ = 1;  // units at most
    Value columns_;  // of the units at hand
    std::vector<Slot> slots_;  // per instruction: its values of columns, once they are known
    std::vector<Slot> totals_;  // lanes of the walk at hand
};

}  // namespace

void emit_columns(Frame& frame) { ColumnEmitter(frame).emit(); }

}  // namespace megjit::mlir_backend
