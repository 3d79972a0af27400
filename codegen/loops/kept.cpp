#include "codegen/loops/kept.h"

#include <algorithm>

namespace megjit::codegen::loops {
namespace {

using runtime::ScalarInst;
using runtime::ScalarOp;

bool has(const std::vector<int>& ids, int id) { return std::ranges::find(ids, id) != ids.end(); }

// Returns those of `elements` that `roots` need where `known` (-1: none) is known.
std::vector<int> needed(const KernelIR& kernel, const std::vector<int>& elements,
                        const std::vector<int>& roots, int known) {
    std::vector<bool> needs(static_cast<size_t>(kernel.program.size()));
    for (const int root : roots) needs[static_cast<size_t>(root)] = true;
    std::vector<int> ids;
    for (size_t n = elements.size(); n-- > 0;) {
        const int id = elements[n];
        if (!needs[static_cast<size_t>(id)] || id == known) continue;
        ids.push_back(id);
        const ScalarInst& inst = kernel.program[id];
        for (int k = 0; k < runtime::arity_of(inst.op); ++k)
            needs[static_cast<size_t>(inst.args[k])] = true;
    }
    std::ranges::reverse(ids);
    return ids;
}

std::vector<int> roots_of(const KernelIR& kernel, const RowWalk& walk) {
    std::vector<int> roots;
    for (const Reduced& reduced : walk.reductions)
        roots.insert(roots.end(), reduced.takes.begin(), reduced.takes.end());
    for (const size_t k : walk.outputs) roots.push_back(kernel.results[k]);
    return roots;
}

// Tells how the value would be kept; there are no takers if no later walk computes it.
Kept kept(const KernelIR& kernel, const RowPlan& plan, int value) {
    Kept found{.value = value};
    for (size_t w = 0; w < plan.walks.size(); ++w) {
        const RowWalk& walk = plan.walks[w];
        if (!has(walk.elements, value)) continue;
        if (found.made.empty()) {
            found.maker = w;
            found.made = needed(kernel, walk.elements, {value}, -1);
        } else {
            found.takers.push_back(
                {w, needed(kernel, walk.elements, roots_of(kernel, walk), value)});
        }
    }
    return found;
}

size_t saved(const RowPlan& plan, const Kept& kept) {
    size_t count = 0;
    for (const Kept::Taker& taker : kept.takers)
        count += plan.walks[taker.walk].elements.size() - taker.elements.size();
    return count;
}

// Returns an output of the taker that can hold the kept value until the taker writes it, or -1. An
// output may share its memory with an input, so the taker must follow the maker at once, and must
// read no element of an input.
int output_for(const KernelIR& kernel, const RowPlan& plan, const Kept& kept) {
    if (kept.takers.size() != 1 || kept.takers[0].walk != kept.maker + 1) return -1;
    const RowWalk& taker = plan.walks[kept.takers[0].walk];
    const bool reads = std::ranges::any_of(
        kept.takers[0].elements, [&](int id) { return kernel.program[id].op == ScalarOp::input; });
    if (reads || !taker.reductions.empty() || !plan.walks[kept.maker].outputs.empty()) return -1;
    const auto fits = [&](size_t k) {
        return kernel.outputs[k].dtype == DType::f32 &&
               kernel.outputs[k].inner == Inner::contiguous;
    };
    const auto output = std::ranges::find_if(taker.outputs, fits);
    return output == taker.outputs.end() ? -1 : static_cast<int>(*output);
}

}  // namespace

const Kept::Taker* Kept::taker(size_t walk) const {
    const auto found = std::ranges::find(takers, walk, &Taker::walk);
    return value < 0 || found == takers.end() ? nullptr : &*found;
}

Kept kept_value(const KernelIR& kernel, const RowPlan& plan, int worth_keeping) {
    Kept best;
    auto most = static_cast<size_t>(worth_keeping);
    for (int id = 0; id < kernel.program.size(); ++id) {
        const ScalarInst& inst = kernel.program[id];
        if (inst.type != ScalarType::f32 || inst.op == ScalarOp::input) continue;
        Kept found = kept(kernel, plan, id);
        if (const size_t count = saved(plan, found); count >= most && count > 0) {
            found.output = output_for(kernel, plan, found);
            most = count;
            best = std::move(found);
        }
    }
    return best;
}

}  // namespace megjit::codegen::loops
