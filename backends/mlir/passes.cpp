#include "backends/mlir/passes.h"

namespace megjit::mlir_backend {

using namespace mlir;
using codegen::KernelIR;
using runtime::ScalarInst;
using runtime::ScalarOp;

namespace {

bool reads_reduction(const KernelIR& kernel, const ScalarInst& inst) {
    return inst.op == ScalarOp::input && inst.bits >= kernel.inputs.size();
}

// The instructions without a value a row that `roots` need, in their order.
SmallVector<int> needed_elements(const KernelIR& kernel, const std::vector<KernelIR::Level>& levels,
                                 ArrayRef<int> roots) {
    std::vector<bool> needed(levels.size());
    for (const int root : roots) needed[static_cast<size_t>(root)] = true;
    for (size_t id = levels.size(); id-- > 0;) {
        needed[id] = needed[id] && !levels[id].per_row;
        if (!needed[id]) continue;
        const ScalarInst& inst = kernel.program[static_cast<int>(id)];
        for (int k = 0; k < runtime::arity_of(inst.op); ++k)
            needed[static_cast<size_t>(inst.args[k])] = true;
    }
    SmallVector<int> ids;
    for (size_t id = 0; id < levels.size(); ++id)
        if (needed[id]) ids.push_back(static_cast<int>(id));
    return ids;
}

}  // namespace

std::vector<Pass> plan_passes(const KernelIR& kernel) {
    const std::vector<KernelIR::Level> levels = kernel.levels();
    const auto level_of = [&](int id) { return levels[static_cast<size_t>(id)]; };
    std::vector<Pass> passes(static_cast<size_t>(kernel.passes()) + 1);
    for (size_t p = 0; p < passes.size(); ++p) {
        Pass& pass = passes[p];
        const int number = static_cast<int>(p);
        SmallVector<int> roots;
        for (size_t r = 0; r < kernel.reductions.size(); ++r) {
            if (level_of(kernel.reductions[r].arg).pass != number) continue;
            pass.reductions.push_back(static_cast<int>(r));
            roots.push_back(kernel.reductions[r].arg);
        }
        for (size_t k = 0; k < kernel.outputs.size(); ++k) {
            if (kernel.outputs[k].per_row || level_of(kernel.results[k]).pass != number) continue;
            pass.outputs.push_back(k);
            roots.push_back(kernel.results[k]);
        }
        for (int id = 0; id < kernel.program.size(); ++id)
            if (level_of(id).per_row && level_of(id).pass == number &&
                !reads_reduction(kernel, kernel.program[id]))
                pass.row.push_back(id);
        pass.elements = needed_elements(kernel, levels, roots);
    }
    return passes;
}

SmallVector<size_t> row_outputs(const KernelIR& kernel) {
    SmallVector<size_t> outputs;
    for (size_t k = 0; k < kernel.outputs.size(); ++k)
        if (kernel.outputs[k].per_row) outputs.push_back(k);
    return outputs;
}

void set_results(const KernelIR& kernel, const Pass& pass, const Values& results, Values& values) {
    for (int id = 0; id < kernel.program.size(); ++id) {
        if (!reads_reduction(kernel, kernel.program[id])) continue;
        const int r = static_cast<int>(kernel.program[id].bits - kernel.inputs.size());
        for (size_t n = 0; n < pass.reductions.size(); ++n)
            if (pass.reductions[n] == r) values[static_cast<size_t>(id)] = results[n];
    }
}

namespace {

class RunLoops {
public:
    RunLoops(Frame& frame, int64_t block, const RunBody& run)
        : f_(frame), block_(block), run_(run) {}

    Values over(int axis, const Values& bases, Value place, const Values& totals) {
        const Value extent = f_.extents[static_cast<size_t>(axis)];
        place = f_.mul(place, extent);
        if (axis + 1 == f_.kernel.rank)
            return over_blocks({bases, place, f_.index(0), extent}, totals);
        return f_.loop(f_.index(0), extent, 1, totals, [&](Value at, const Values& state) {
            return over(axis + 1, f_.along(bases, axis, at), f_.add(place, at), state);
        });
    }

private:
    Values over_blocks(const Run& all, const Values& totals) {
        if (block_ == 0) return run_(all, totals);
        return f_.loop(all.from, all.to, block_, totals, [&](Value at, const Values& state) {
            return run_(
                {all.bases, all.place, at, f_.smaller(all.to, f_.add(at, f_.index(block_)))},
                state);
        });
    }

    Frame& f_;
    int64_t block_;
    const RunBody& run_;
};

}  // namespace

Values for_runs(Frame& f, const Values& bases, int64_t block, const Values& totals,
                const RunBody& run) {
    return RunLoops(f, block, run).over(f.kernel.kept(), bases, f.index(0), totals);
}

Value row_elements(Frame& f) {
    Value elements = f.index(1);
    for (int axis = f.kernel.kept(); axis < f.kernel.rank; ++axis)
        elements = f.mul(elements, f.extents[static_cast<size_t>(axis)]);
    return elements;
}

}  // namespace megjit::mlir_backend
