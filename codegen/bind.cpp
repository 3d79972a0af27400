// Turns shapes into an iteration space: broadcasting becomes strides, and axes are merged until
// only those are left that some operand walks differently.
#include <algorithm>
#include <numeric>

#include "codegen/kernel_ir.h"
#include "codegen/strides.h"
#include "codegen/tiles.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

// The axes while they are merged. Kept and reduced ones never merge with each other.
struct Walk {
    std::vector<int64_t> extents;
    size_t kept = 0;
    std::vector<std::vector<int64_t>> strides;  // inputs, then outputs

    bool can_merge(size_t outer) const {  // with the axis after `outer`
        return outer + 1 != kept &&
               std::all_of(strides.begin(), strides.end(), [&](const std::vector<int64_t>& s) {
            return s[outer] == s[outer + 1] * extents[outer + 1];
        });
    }
    void drop(size_t axis) {
        extents.erase(extents.begin() + static_cast<ptrdiff_t>(axis));
        for (auto& s : strides) s.erase(s.begin() + static_cast<ptrdiff_t>(axis));
        if (axis < kept) --kept;
    }
    void collapse() {
        for (size_t axis = extents.size(); axis-- > 0;)
            if (extents[axis] == 1) drop(axis);
        for (size_t axis = extents.size(); axis-- > 1;) {
            if (!can_merge(axis - 1)) continue;
            extents[axis] *= extents[axis - 1];
            drop(axis - 1);
        }
    }
    void append_axis_of_one() {
        extents.push_back(1);
        for (auto& s : strides) s.push_back(0);
    }
    // Counts bytes that lie side by side along an axis.
    double contiguous_bytes(size_t axis, const KernelSpec& spec) const {
        double bytes = 0;
        for (size_t i = 0; i < strides.size(); ++i) {
            if (strides[i][axis] != 1) continue;
            double elements = 1;
            for (size_t a = 0; a < extents.size(); ++a)
                if (strides[i][a] != 0) elements *= static_cast<double>(extents[a]);
            const bool is_input = i < spec.inputs.size();
            if (is_input && spec.inputs[i].is_offset) continue;
            bytes += elements *
                     static_cast<double>(size_of(
                         (is_input ? spec.inputs[i] : spec.outputs[i - spec.inputs.size()]).dtype));
        }
        return bytes;
    }
};

Inner inner_of(int64_t stride) {
    if (stride == 0) return Inner::broadcast;
    return stride == 1 ? Inner::contiguous : Inner::strided;
}

// May a kernel by columns transpose vectors along the operand's last axis?
bool is_transposed(const Operand& operand, int64_t last_stride) {
    return operand.inner == Inner::strided && last_stride == 1 && operand.by < 0 &&
           !operand.is_offset;
}

Operand operand_of(const KernelSpec::Access& access, const std::vector<int64_t>& strides,
                   const KernelIR& kernel) {
    const auto reduced = strides.begin() + kernel.kept();
    return {.dtype = access.dtype,
            .inner = inner_of(strides[static_cast<size_t>(kernel.lane_axis())]),
            .per_row = kernel.reduced > 0 &&
                       std::all_of(reduced, strides.end(), [](int64_t s) { return s == 0; }),
            .by = access.by,
            .is_offset = access.is_offset};
}

// Do lanes go along the last kept axis? In contractions they do if no factor is strided there, or
// if factors are packed.
bool prefers_columns(const Walk& walk, const KernelSpec& spec) {
    const size_t columns = walk.kept - 1;
    if (spec.packs && walk.kept > 1) return true;
    if (!is_contraction(spec.reductions))
        return walk.contiguous_bytes(columns, spec) >
               walk.contiguous_bytes(walk.extents.size() - 1, spec);
    const auto is_strided = [&](const auto& strides) { return strides[columns] > 1; };
    return std::none_of(walk.strides.begin(),
                        walk.strides.begin() + static_cast<ptrdiff_t>(spec.inputs.size()),
                        is_strided);
}

// Finds which operands of a contraction repeat from row to row, and whether rows are walked in
// tiles.
void share_rows(KernelIR& kernel, const LaunchShape& launch, bool packs) {
    const int row_axis = kernel.kept() - (kernel.lanes == Lanes::last ? 1 : 2);
    if (!is_contraction(kernel.reductions) || row_axis < 0) return;
    KernelIR shared = kernel;
    if (shared.lanes == Lanes::kept) shared.lanes = packs ? Lanes::panels : Lanes::tiles;
    const auto stride = [&](size_t i, int axis) {
        return launch.strides[i * static_cast<size_t>(kernel.rank) + static_cast<size_t>(axis)];
    };
    for (size_t i = 0; i < shared.inputs.size(); ++i) {
        Operand& input = shared.inputs[i];
        input.repeats = stride(i, row_axis) == 0;
        if (packs && is_transposed(input, stride(i, kernel.rank - 1)))
            input.inner = Inner::transposed;
    }
    if (has_dot_rows(shared) || tile_plan_of(shared)) kernel = std::move(shared);
}

}  // namespace

int64_t LaunchShape::numel() const {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

int64_t LaunchShape::rows() const {
    return std::accumulate(extents.begin(), extents.end() - 1, int64_t{1}, std::multiplies<>());
}

int64_t units(const KernelIR& kernel, const LaunchShape& launch) {
    if (kernel.reduced == 0) return kernel.rank == 1 ? launch.numel() : launch.rows();
    int64_t count = 1;
    for (int axis = 0; axis < kernel.kept(); ++axis) {
        const bool is_block = kernel.lanes != Lanes::last && axis == kernel.lane_axis(),
                   is_tile = kernel.lanes > Lanes::kept && axis + 1 == kernel.lane_axis(),
                   is_dots = axis + 1 == kernel.kept() && has_dot_rows(kernel);
        const int64_t block = is_block  ? kColumnBlock
                              : is_tile ? rows_of_tile(kernel.lanes)
                              : is_dots ? kDotRows
                                        : 1;
        count *= (launch.extents[axis] + block - 1) / block;
    }
    return count;
}

bool runs_without_code(const KernelIR& kernel) {
    return kernel.reductions.empty() &&
           std::none_of(kernel.inputs.begin(), kernel.inputs.end(),
                        [](const Operand& input) { return input.by >= 0 || input.is_offset; });
}

bool may_lie_on(const KernelIR& kernel, const LaunchShape& launch, int out, int in) {
    const Operand& input = kernel.inputs[static_cast<size_t>(in)];
    const Operand& output = kernel.outputs[static_cast<size_t>(out)];
    if (size_of(input.dtype) != size_of(output.dtype) || input.by >= 0 || input.is_offset ||
        input.per_row != output.per_row)
        return false;
    const size_t rank = launch.extents.size(), from = static_cast<size_t>(in) * rank,
                 to = (kernel.inputs.size() + static_cast<size_t>(out)) * rank;
    int64_t row_major = 1;
    for (size_t axis = rank; axis-- > 0; row_major *= launch.extents[axis])
        if (launch.extents[axis] != 1 &&
            launch.strides[from + axis] != (kernel.reduced ? launch.strides[to + axis] : row_major))
            return false;
    return kernel.reduced == 0 || output.per_row ||
           kernel.levels()[kernel.results[static_cast<size_t>(out)]].pass + 1 == kernel.passes();
}

bool may_lie_on(const KernelIR& kernel, std::span<const LaunchShape> launches, int out, int in) {
    const int inputs = static_cast<int>(memory_inputs(kernel)),
              outputs = static_cast<int>(kernel.outputs.size()), launch = out / outputs;
    return in / inputs == launch &&
           may_lie_on(kernel, launches[static_cast<size_t>(launch)], out % outputs, in % inputs);
}

BoundKernel bind(KernelSpec spec) {
    Walk walk{.extents = spec.extents,
              .kept = spec.extents.size() - static_cast<size_t>(spec.reduced),
              .strides = {}};
    for (const auto* list : {&spec.inputs, &spec.outputs})
        for (const KernelSpec::Access& access : *list) walk.strides.push_back(access.strides);
    walk.collapse();
    if (spec.reduced > 0 && walk.kept == walk.extents.size()) walk.append_axis_of_one();
    if (walk.extents.empty()) {  // one element in all: its kernel is that of longer tensors
        walk.append_axis_of_one();
        for (size_t i = 0; i < walk.strides.size(); ++i)
            walk.strides[i] = {i >= spec.inputs.size() || !spec.inputs[i].is_scalar};
    }

    BoundKernel bound;
    KernelIR& kernel = bound.kernel;
    kernel.rank = static_cast<int>(walk.extents.size());
    kernel.reduced = spec.reduced > 0 ? kernel.rank - static_cast<int>(walk.kept) : 0;
    if (kernel.reduced > 0 && walk.kept > 0 && prefers_columns(walk, spec))
        kernel.lanes = Lanes::kept;
    for (size_t i = 0; i < walk.strides.size(); ++i) {
        const bool is_input = i < spec.inputs.size();
        const auto& access = is_input ? spec.inputs[i] : spec.outputs[i - spec.inputs.size()];
        (is_input ? kernel.inputs : kernel.outputs)
            .push_back(operand_of(access, walk.strides[i], kernel));
        bound.launch.strides.insert(bound.launch.strides.end(), walk.strides[i].begin(),
                                    walk.strides[i].end());
    }
    for (const KernelSpec::Access& input : spec.inputs)
        if (input.by >= 0) bound.launch.strides.push_back(input.gather_stride);
    bound.launch.extents = std::move(walk.extents);

    std::vector<int> roots = spec.results;
    for (const Reduction& reduction : spec.reductions) roots.push_back(reduction.arg);
    spec.program.keep_only(roots);
    kernel.results.assign(roots.begin(),
                          roots.begin() + static_cast<ptrdiff_t>(spec.results.size()));
    kernel.reductions = std::move(spec.reductions);
    for (size_t r = 0; r < kernel.reductions.size(); ++r)
        kernel.reductions[r].arg = roots[spec.results.size() + r];
    kernel.program = std::move(spec.program);
    share_rows(kernel, bound.launch, spec.packs);
    return bound;
}

BoundKernel bind(ScalarProgram program, std::vector<int> results, std::vector<DType> outputs,
                 const Shape& space, std::span<const Type> inputs, Layout layout) {
    KernelSpec spec;
    spec.program = std::move(program);
    spec.results = std::move(results);
    const std::vector<int> order = memory_order(layout, space.rank());
    const bool is_empty =
        space.numel() == 0;  // no element is walked: the kernel of a flat space serves
    for (int axis : order)
        if (!is_empty) spec.extents.push_back(space[axis]);
    if (is_empty) spec.extents = {0};
    const auto add = [&](std::vector<KernelSpec::Access>& to, const Type& type) {
        KernelSpec::Access& access = to.emplace_back();
        access.dtype = type.dtype;
        access.is_scalar = type.rank() < space.rank() || space.rank() == 0;
        if (is_empty) return access.strides.push_back(1);
        const std::vector<int64_t> logical =
            broadcast_strides(type.shape, dense_strides(type), space);
        for (int axis : order) access.strides.push_back(logical[axis]);
    };
    for (const Type& type : inputs) add(spec.inputs, type);
    for (DType dtype : outputs)
        add(spec.outputs, {.dtype = dtype, .shape = space, .layout = layout});
    return bind(std::move(spec));
}

BoundKernel elementwise_kernel(const OpCall& call, const Type& output) {
    ScalarProgram program;
    const int result = build_expr(call, output.dtype, program);
    return bind(std::move(program), {result}, {output.dtype}, output.shape, call.inputs,
                output.layout);
}

}  // namespace megjit::codegen
