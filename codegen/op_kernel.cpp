#include "codegen/op_kernel.h"

#include <bit>

#include "codegen/strides.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

BoundKernel reduction_kernel(const OpCall& call, const Type& output) {
    const Type& input = call.inputs[0];
    const uint32_t reduced = reduced_axes(call);
    const std::vector<int64_t> strides = dense_strides(input);
    KernelSpec spec;
    spec.inputs = {{.dtype = input.dtype}};
    spec.outputs = {{.dtype = output.dtype}};
    const auto add_axis = [&](int axis) {
        spec.extents.push_back(input.shape[axis]);
        spec.inputs[0].strides.push_back(strides[static_cast<size_t>(axis)]);
    };
    for (int axis = 0; axis < input.rank(); ++axis)
        if (!(reduced >> axis & 1u)) add_axis(axis);
    const size_t kept = spec.extents.size();
    for (int axis = 0; axis < input.rank(); ++axis)
        if (reduced >> axis & 1u) add_axis(axis);
    if (spec.extents.size() == kept) {  // there is no axis: each element is a row
        spec.extents.push_back(1);
        spec.inputs[0].strides.push_back(0);
    }
    spec.reduced = static_cast<int>(spec.extents.size() - kept);
    spec.outputs[0].strides.assign(spec.extents.size(), 0);
    int64_t step = 1;
    for (size_t i = kept; i-- > 0; step *= spec.extents[i]) spec.outputs[0].strides[i] = step;
    const int arg = spec.program.input(0, compute_type(input.dtype));
    spec.results = {add_reduction(spec, *call.op.reduction, arg, output.dtype)};
    return bind(std::move(spec));
}

// Every element of the result is an element of the operand, which `strides` find.
BoundKernel copy_kernel(const Type& input, const std::vector<int64_t>& strides,
                        const Type& output) {
    KernelSpec spec;
    spec.inputs = {{.dtype = input.dtype}};
    spec.outputs = {{.dtype = output.dtype}};
    const std::vector<int64_t> to = dense_strides(output);
    for (int axis : memory_order(output.layout, output.rank())) {
        spec.extents.push_back(output.shape[axis]);
        spec.inputs[0].strides.push_back(strides[static_cast<size_t>(axis)]);
        spec.outputs[0].strides.push_back(to[static_cast<size_t>(axis)]);
    }
    spec.results = {spec.program.input(0, compute_type(input.dtype))};
    return bind(std::move(spec));
}

BoundKernel transpose_kernel(const OpCall& call, const Type& output) {
    const std::vector<int64_t> from = dense_strides(call.inputs[0]);
    std::vector<int64_t> strides;
    for (int64_t axis : std::get<std::vector<int64_t>>(call.attrs[0]))
        strides.push_back(from[static_cast<size_t>(axis)]);
    return copy_kernel(call.inputs[0], strides, output);
}

}  // namespace

int add_reduction(KernelSpec& spec, Reduce kind, int arg, DType result) {
    Expr value(&spec.program, arg);
    // A sum of integers is exact in f64 up to 2^53, and never wraps.
    const bool is_mean_of_integers = kind == Reduce::mean && !is_real(value.type());
    if (is_mean_of_integers) value = to_type(value, ScalarType::f64);
    const bool keeps_bool = kind == Reduce::max || kind == Reduce::min;
    if (value.type() == ScalarType::b1 && !keeps_bool) value = to_type(value, ScalarType::i32);
    const bool is_place = kind == Reduce::argmax || kind == Reduce::argmin;
    const ScalarType type = is_place ? ScalarType::i32 : value.type();
    const int at_input = static_cast<int>(spec.inputs.size() + spec.reductions.size());
    spec.reductions.push_back({kind, value.id()});
    Expr reduced(&spec.program, spec.program.input(at_input, type));
    if (is_mean_of_integers) reduced = to_type(reduced, ScalarType::f32);
    return narrow(reduced, result).id();
}

std::optional<BoundKernel> contraction_kernel(const OpCall& call, std::span<const Type> outputs) {
    if (!call.op.contraction || outputs.size() != 1 || call.inputs.size() != 2) return {};
    for (const Type& type : {call.inputs[0], call.inputs[1], outputs[0]})
        if (type.layout != Layout::row_major || compute_type(type.dtype) != ScalarType::f32)
            return {};
    const std::optional<Contraction> found = call.op.contraction(call);
    if (!found) return {};
    KernelSpec spec;
    spec.extents.assign(found->space.begin(), found->space.end());
    spec.reduced = 1;
    for (size_t i = 0; i < 2; ++i)
        spec.inputs.push_back({.dtype = call.inputs[i].dtype, .strides = found->strides[i]});
    std::vector<int64_t> strides(spec.extents.size(), 0);
    int64_t step = 1;
    for (size_t axis = strides.size() - 1; axis-- > 0; step *= spec.extents[axis])
        strides[axis] = step;
    spec.outputs.push_back({.dtype = outputs[0].dtype, .strides = std::move(strides)});
    const Expr a(&spec.program, spec.program.input(0, ScalarType::f32)),
        b(&spec.program, spec.program.input(1, ScalarType::f32));
    spec.results = {add_reduction(spec, Reduce::dot, (a * b).id(), outputs[0].dtype)};
    return bind(std::move(spec));
}

int constant_in(ScalarProgram& program, DType dtype, double value) {
    return Expr(&program, -1).constant(compute_type(dtype), value).id();
}

BoundKernel full_kernel(const OpCall& call, const Type& output) {
    ScalarProgram program;
    const int value = constant_in(program, output.dtype, call.real("value"));
    const int result = narrow(Expr(&program, value), output.dtype).id();
    return bind(std::move(program), {result}, {output.dtype}, output.shape, {});
}

BoundKernel slice_kernel(const OpCall& call, const Type& output, int64_t& first) {
    const auto &begin = call.integers("begin"), &step = call.integers("step");
    std::vector<int64_t> strides = dense_strides(call.inputs[0]);
    first = 0;
    for (size_t axis = 0; axis < strides.size(); ++axis) {
        first += begin[axis] * strides[axis];
        strides[axis] *= step[axis];
    }
    return copy_kernel(call.inputs[0], strides, output);
}

std::optional<BoundKernel> kernel_of(const OpCall& call, std::span<const Type> outputs) {
    if (outputs.size() != 1 || outputs[0].dtype == DType::c64) return {};
    for (const Type& input : call.inputs)
        if (input.dtype == DType::c64) return {};
    const Type& output = outputs[0];
    if (call.op.is_elementwise()) return elementwise_kernel(call, output);
    if (call.inputs.empty()) return {};
    const Type& input = call.inputs[0];
    if (call.op.reduction) {
        if (runtime::is_packed(input.layout)) return {};
        return reduction_kernel(call, output);
    }
    if (call.op.access == Access::permuted) return transpose_kernel(call, output);
    if (call.op.access == Access::broadcast)
        return copy_kernel(
            input, broadcast_strides(input.shape, dense_strides(input), output.shape), output);
    return {};
}

}  // namespace megjit::codegen
