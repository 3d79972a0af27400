#include "runtime/ops/builders.h"

namespace megjit::runtime::build {

TensorRef op(std::string_view name, std::initializer_list<TensorRef> inputs, Attrs attrs) {
    return apply(find_op(name), attrs, {inputs.begin(), inputs.size()})[0];
}

Tensors op_n(std::string_view name, std::span<const TensorRef> inputs, Attrs attrs) {
    return apply(find_op(name), attrs, inputs);
}

TensorRef sum_of(const TensorRef& a, const TensorRef& b) {
    if (a->dtype() != DType::c64) return add(a, b);
    return op("complex",
              {add(op("real", {a}), op("real", {b})), add(op("imag", {a}), op("imag", {b}))});
}

TensorRef number(double value, const TensorRef& like) {
    return scalar_tensor(value, like->dtype());
}

namespace {
Axes extents_of(const Shape& shape) { return {shape.begin(), shape.end()}; }
}  // namespace

TensorRef cast(const TensorRef& x, DType dtype) {
    return x->dtype() == dtype ? x : op("cast", {x}, {std::string(info(dtype).name)});
}

TensorRef narrow_places(const TensorRef& places) {
    const TensorRef least = op("maximum", {places, number(INT32_MIN, places)});
    return cast(op("minimum", {least, number(INT32_MAX, places)}), DType::i32);
}

TensorRef reshape(const TensorRef& x, const Shape& shape) {
    return x->shape() == shape ? x : op("reshape", {x}, {extents_of(shape)});
}

TensorRef slice(const TensorRef& x, int axis, int64_t begin, int64_t end) {
    Axes first(static_cast<size_t>(x->shape().rank()), 0),
        last(x->shape().begin(), x->shape().end());
    first[static_cast<size_t>(axis)] = begin, last[static_cast<size_t>(axis)] = end;
    return op("slice", {x}, {first, last, Axes(first.size(), 1)});
}

TensorRef broadcast_to(const TensorRef& x, const Shape& shape) {
    return x->shape() == shape ? x : op("broadcast_to", {x}, {extents_of(shape)});
}

TensorRef transpose(const TensorRef& x, const Axes& perm) { return op("transpose", {x}, {perm}); }

TensorRef reduce_sum(const TensorRef& x, const Axes& axes, bool keepdims) {
    return op("reduce_sum", {x}, {axes, int64_t{keepdims}});
}

TensorRef full(const Shape& shape, double value, DType dtype, Device& device) {
    const Attrs attrs{extents_of(shape), value, std::string(info(dtype).name)};
    return apply(find_op("full"), attrs, {}, &device)[0];
}

TensorRef reduce_to(const TensorRef& x, const Shape& shape) {
    if (x->shape() == shape) return x;
    Axes axes;
    const int offset = x->shape().rank() - shape.rank();
    for (int axis = 0; axis < x->shape().rank(); ++axis)
        if (axis < offset || (shape[axis - offset] == 1 && x->shape()[axis] != 1))
            axes.push_back(axis);
    return reshape(axes.empty() ? x : reduce_sum(x, axes, false), shape);
}

}  // namespace megjit::runtime::build
