#include "jit/api/static_node.h"

#include <algorithm>

#include "runtime/eager/dispatch.h"

namespace megjit::api {

using codegen::BoundKernel;
using jit::Node;
using jit::NodeKind;
using jit::ValueId;
using runtime::DType;
using runtime::Shape;
using runtime::Type;

NodeMaker::Ints ints(const Shape& shape) { return {shape.begin(), shape.end()}; }

bool is_padded(const runtime::Window& window) {
    return std::ranges::any_of(window.padding, [](int64_t padding) { return padding > 0; });
}

ValueId NodeMaker::make(std::string_view op, std::vector<ValueId> inputs, runtime::Attrs attrs) {
    return rewrite_.to.add_op(runtime::find_op(op), std::move(inputs), std::move(attrs), *node_)[0];
}

ValueId NodeMaker::kernel(BoundKernel bound, std::vector<ValueId> inputs, const Type& type) {
    Node fused{.kind = NodeKind::fused,
               .inputs = std::move(inputs),
               .kernel = std::make_shared<const BoundKernel>(std::move(bound)),
               .ops = {node_->op->name},
               .where = node_->where};
    return rewrite_.to.add(std::move(fused), {&type, 1})[0];
}

ValueId NodeMaker::reshaped(ValueId x, const Shape& shape) {
    return type(x).shape == shape ? x : make("reshape", {x}, {ints(shape)});
}

ValueId NodeMaker::constant(const Shape& shape, const std::vector<float>& values) {
    return rewrite_.to.add_constant(
        runtime::tensor_from_host(runtime::host_device(), Type{DType::f32, shape}, values.data()));
}
ValueId NodeMaker::constant(const Shape& shape, const std::vector<int32_t>& values) {
    return rewrite_.to.add_constant(
        runtime::tensor_from_host(runtime::host_device(), Type{DType::i32, shape}, values.data()));
}

ValueId NodeMaker::framed(ValueId x, const Shape& shape, const Ints& begin, const Ints& step,
                          double value) {
    const Type of = type(x);
    const ValueId frame = make("full", {}, {ints(shape), value, std::string(info(of.dtype).name)});
    Ints end = begin;
    for (size_t axis = 0; axis < end.size(); ++axis)
        end[axis] += (of.shape[static_cast<int>(axis)] - 1) * step[axis] + 1;
    return make("slice_set", {frame, x}, {begin, end, step});
}

ValueId NodeMaker::padded(ValueId x, runtime::Window& window, double value) {
    if (!is_padded(window)) return x;
    Shape shape = type(x).shape;
    Ints begin(static_cast<size_t>(shape.rank()), 0);
    for (int axis = 0; axis < window.dims; ++axis) {
        begin[static_cast<size_t>(axis) + 2] = window.padding[axis];
        shape[axis + 2] += 2 * std::exchange(window.padding[axis], 0);
    }
    return framed(x, shape, begin, Ints(begin.size(), 1), value);
}

ValueId NodeMaker::counts(const runtime::PoolWindow& pool, const Type& x, const Shape& y) {
    Shape shape = y;
    shape[0] = shape[1] = 1;
    std::vector<float> counts{1};
    for (int axis = 0; axis < pool.window.dims; ++axis) {
        std::vector<float> more;
        for (const float count : counts)
            for (int64_t o = 0; o < shape[axis + 2]; ++o) {
                const auto [begin, end] = pool.range(axis, o, x.shape[axis + 2], shape[axis + 2]);
                more.push_back(count * static_cast<float>(end - begin));
            }
        counts = std::move(more);
    }
    const ValueId made = constant(shape, counts);
    return x.dtype == DType::f32 ? made : make("cast", {made}, {std::string(info(x.dtype).name)});
}

}  // namespace megjit::api
