// runtime/ops/builders.h -- ops applied to tensors, for gradients that are written in other ops.
// All of them go through dispatch, so that outer tapes and running traces see them.
#pragma once

#include <initializer_list>
#include <vector>

#include "runtime/eager/dispatch.h"

namespace megjit::runtime::build {

using Axes = std::vector<int64_t>;

// Applies any op by name; attributes are in the order of its OpDef.
TensorRef op(std::string_view name, std::initializer_list<TensorRef> inputs, Attrs attrs = {});
Tensors op_n(std::string_view name, std::span<const TensorRef> inputs,
             Attrs attrs = {});  // returns all outputs

inline TensorRef add(const TensorRef& a, const TensorRef& b) { return op("add", {a, b}); }
TensorRef sum_of(const TensorRef& a, const TensorRef& b);  // works by parts on complex numbers
inline TensorRef sub(const TensorRef& a, const TensorRef& b) { return op("sub", {a, b}); }
inline TensorRef mul(const TensorRef& a, const TensorRef& b) { return op("mul", {a, b}); }
inline TensorRef div(const TensorRef& a, const TensorRef& b) { return op("true_div", {a, b}); }
inline TensorRef neg(const TensorRef& a) { return op("neg", {a}); }
inline TensorRef product(const TensorRef& a, const TensorRef& b, bool transpose_a = false,
                         bool transpose_b = false) {
    return op("matmul", {a, b}, {int64_t{transpose_a}, int64_t{transpose_b}});
}
inline TensorRef where(const TensorRef& mask, const TensorRef& a, const TensorRef& b) {
    return op("where", {mask, a, b});
}

// A number that is used beside a tensor, in the tensor's dtype.
TensorRef number(double value, const TensorRef& like);
inline TensorRef mul(const TensorRef& a, double b) { return mul(a, number(b, a)); }
inline TensorRef add(const TensorRef& a, double b) { return add(a, number(b, a)); }

TensorRef cast(const TensorRef& x, DType dtype);  // x itself when it has that dtype
// Casts places of int64 to int32, which kernels read; a place that does not fit lies outside of
// every axis, too.
TensorRef narrow_places(const TensorRef& places);
TensorRef reshape(const TensorRef& x, const Shape& shape);  // x itself when it has that shape
TensorRef broadcast_to(const TensorRef& x, const Shape& shape);
TensorRef slice(const TensorRef& x, int axis, int64_t begin, int64_t end);
TensorRef transpose(const TensorRef& x, const Axes& perm);
TensorRef reduce_sum(const TensorRef& x, const Axes& axes, bool keepdims);
TensorRef full(const Shape& shape, double value, DType dtype, Device& device);
inline TensorRef zeros_like(const TensorRef& x) {
    return full(x->shape(), 0, x->dtype(), x->device());
}
// Sums over the axes along which `shape` was broadcast to x's shape: the gradient of broadcasting.
TensorRef reduce_to(const TensorRef& x, const Shape& shape);

// Gradients of a call, to any order, by differentiating the other ops in which `made_of` writes it.
using MadeOf = Tensors (*)(const OpCall&, std::span<const TensorRef> inputs);
Grads gradients_through(const GradCall& g, MadeOf made_of);

}  // namespace megjit::runtime::build
