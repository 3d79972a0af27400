#include "codegen/kernel_work.h"

#include <algorithm>
#include <set>

#include "codegen/gpu_plan.h"
#include "codegen/legalize.h"
#include "codegen/row_plan.h"
#include "codegen/tiles.h"

namespace megjit::codegen {
namespace {

using runtime::ScalarInst;
using runtime::ScalarOp;

// Instructions that a GPU needs for one: a division or root of IEEE is a sequence of about eight.
double instructions_in(const ScalarInst& inst) {
    switch (inst.op) {
        case ScalarOp::input:
        case ScalarOp::constant: return 0;
        case ScalarOp::div:
        case ScalarOp::mod:
        case ScalarOp::sqrt: return 8;
        default: return 1;
    }
}

// Bytes of the elements of an operand that a launch touches, each counted once.
double touched_bytes(const KernelIR& kernel, const LaunchShape& launch, size_t at) {
    const size_t rank = launch.extents.size();
    const Operand& it = operand(kernel, at);
    if (it.is_offset) return 0;
    double count = 1;
    for (size_t axis = 0; axis < rank; ++axis)
        if (launch.strides[at * rank + axis] != 0 || it.by >= 0)
            count *= static_cast<double>(launch.extents[axis]);
    return count * static_cast<double>(runtime::size_of(it.dtype));
}

double written_bytes(const KernelIR& kernel, const LaunchShape& launch) {
    double bytes = 0;
    for (size_t k = 0; k < kernel.outputs.size(); ++k) {
        double count = 1;
        const int axes = kernel.outputs[k].per_row ? kernel.kept() : kernel.rank;
        for (int axis = 0; axis < axes; ++axis)
            count *= static_cast<double>(launch.extents[static_cast<size_t>(axis)]);
        bytes += count * static_cast<double>(runtime::size_of(kernel.outputs[k].dtype));
    }
    return bytes;
}

double sum_of(const KernelIR& kernel, const std::vector<int>& ids) {
    double sum = 0;
    for (const int id : ids) sum += instructions_in(kernel.program[id]);
    return sum;
}

// Adds the work on elements and rows, walk by walk, and the bytes that walks after the first read
// again: those of all rows that the GPU has under way at once, if the cache does not hold them.
void add_walks(KernelWork& work, const KernelIR& kernel, const LaunchShape& launch,
               CodeTarget target, double cache_bytes) {
    const RowPlan plan = row_plan_of(kernel);
    const auto elements = static_cast<double>(launch.numel());
    double rows = 1;
    for (int axis = 0; axis < kernel.kept(); ++axis)
        rows *= static_cast<double>(launch.extents[static_cast<size_t>(axis)]);
    std::set<uint64_t> read;
    double again = 0;
    for (const RowWalk& walk : plan.walks) {
        const double of_element =
            sum_of(kernel, walk.elements) + static_cast<double>(walk.reductions.size());
        work.instructions_of_element += of_element;
        work.instructions += elements * of_element + rows * sum_of(kernel, walk.row);
        for (const int id : walk.elements) {
            const ScalarInst& inst = kernel.program[id];
            if (inst.op != ScalarOp::input || inst.bits >= kernel.inputs.size()) continue;
            if (!read.insert(inst.bits).second) again += touched_bytes(kernel, launch, inst.bits);
        }
    }
    // Those of a large GPU; warps with a row each have registers for a quarter of them.
    constexpr double kThreadsAtOnce = 132 * 2048, kMostRowsAtOnce = kThreadsAtOnce / 32 / 4;
    const GpuPlan by = gpu_plan_of(kernel, launch, target);
    const double rows_at_once = std::min(kMostRowsAtOnce, kThreadsAtOnce / (by.team * by.parts));
    const double at_once = again * std::min(1.0, rows_at_once / std::max(rows, 1.0));
    if (at_once > cache_bytes) work.bytes += again;
}

}  // namespace

KernelWork work_of(const KernelIR& kernel, const LaunchShape& launch, CodeTarget target,
                   double cache_bytes) {
    KernelWork work;
    for (size_t at = 0; at < kernel.inputs.size(); ++at)
        work.bytes += touched_bytes(kernel, launch, at);
    work.bytes += written_bytes(kernel, launch);
    const KernelIR legal = legalize(kernel);
    if (kernel.reduced == 0) {
        for (const ScalarInst& inst : legal.program.insts())
            work.instructions_of_element += instructions_in(inst);
        work.instructions = work.instructions_of_element * static_cast<double>(launch.numel());
        return work;
    }
    if (is_one_product(kernel)) {
        work.flops = 2 * static_cast<double>(launch.numel());
        work.halves = gpu_plan_of(kernel, launch, target).tensor_cores;
        return work;
    }
    add_walks(work, legal, launch, target, cache_bytes);
    return work;
}

}  // namespace megjit::codegen
