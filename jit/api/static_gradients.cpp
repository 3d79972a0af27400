#include "jit/api/static_gradients.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "codegen/window_kernel.h"

namespace megjit::api {

using jit::ValueId;
using runtime::DType;
using runtime::OpCall;
using runtime::PoolWindow;
using runtime::Shape;
using runtime::Type;
using runtime::Window;
using Ints = NodeMaker::Ints;

// The product of dy with what places see, summed over all of them.
std::optional<ValueId> filter_gradient(NodeMaker& at, const OpCall& call) {
    runtime::ConvProblem problem =
        runtime::conv_problem(call, {&at.result(), 1}, runtime::ConvRole::filter);
    if (problem.groups != 1) return {};
    const ValueId x = at.padded(at.operand(0), problem.window, 0);
    const int64_t images = problem.y.shape[0], maps = problem.y.shape[1],
                  places = problem.y.numel() / (images * maps), taps = problem.w.numel() / maps;
    const Type seen{problem.x.dtype, {images, taps, places}};
    const auto in_rows = [&](ValueId value, int64_t rows) {  // [rows, images * places]
        value = at.make("transpose", {at.reshaped(value, {images, rows, places})}, {Ints{1, 0, 2}});
        return at.reshaped(value, {rows, images * places});
    };
    const ValueId columns =
        in_rows(at.kernel(codegen::windows_kernel(at.type(x), problem.window), {x}, seen), taps);
    return at.reshaped(
        at.make("matmul", {in_rows(at.operand(1), maps), columns}, {int64_t{0}, int64_t{1}}),
        at.result().shape);
}

// One element of each place's window gets dy, the first largest: element by element of the window,
// what the places give it is spread by the stride, and all are added.
std::optional<ValueId> max_pool_gradient(NodeMaker& at, const OpCall& call) {
    const Type x_type = at.result(), dy_type = call.inputs[1];
    if (x_type.dtype != DType::f32) return {};
    const Window pool = runtime::pool_window(call, x_type.rank() - 2).window;
    Window window = pool;
    const ValueId x = at.padded(at.operand(0), window, -std::numeric_limits<double>::infinity());
    const Shape frame = at.type(x).shape;
    const int64_t taps = std::accumulate(pool.kernel.begin(), pool.kernel.begin() + pool.dims,
                                         int64_t{1}, std::multiplies<>()),
                  images = x_type.shape[0], maps = x_type.shape[1],
                  places = dy_type.numel() / (images * maps);
    const Shape by_tap{images, maps, taps, places};
    const ValueId seen =
        at.kernel(codegen::windows_kernel(at.type(x), window), {x}, Type{x_type.dtype, by_tap});
    std::vector<int32_t> numbers(static_cast<size_t>(taps));
    std::iota(numbers.begin(), numbers.end(), 0);
    const ValueId largest = at.make("argmax", {seen}, {int64_t{2}, int64_t{1}}),
                  is_it = at.make("equal", {largest, at.constant({1, 1, taps, 1}, numbers)}),
                  given = at.make("where",
                                  {is_it, at.reshaped(at.operand(1), {images, maps, 1, places}),
                                   at.constant({}, std::vector<float>{0})});
    Ints step{1, 1};
    step.insert(step.end(), pool.stride.begin(), pool.stride.begin() + pool.dims);
    std::optional<ValueId> sum;
    for (int64_t tap = 0; tap < taps; ++tap) {
        Ints begin(static_cast<size_t>(pool.dims) + 2, 0);
        int64_t left = tap;
        for (int axis = pool.dims - 1; axis >= 0; --axis) {
            begin[static_cast<size_t>(axis) + 2] = left % pool.kernel[axis];
            left /= pool.kernel[axis];
        }
        const ValueId part =
            at.make("slice", {given},
                    {Ints{0, 0, tap, 0}, Ints{images, maps, tap + 1, places}, Ints{1, 1, 1, 1}});
        const ValueId spread = at.framed(at.reshaped(part, dy_type.shape), frame, begin, step, 0);
        sum = sum ? at.make("add", {*sum, spread}) : spread;
    }
    if (!is_padded(pool)) return sum;
    Ints begin(step.size(), 0), end = ints(x_type.shape);
    for (int axis = 0; axis < pool.dims; ++axis) {
        begin[static_cast<size_t>(axis) + 2] = pool.padding[axis];
        end[static_cast<size_t>(axis) + 2] += pool.padding[axis];
    }
    return at.make("slice", {*sum}, {begin, end, Ints(step.size(), 1)});
}

// Each element of x gets the sum of what the places around it share out: of dy, spread by the
// stride, what a window sees that slides by ones.
std::optional<ValueId> avg_pool_gradient(NodeMaker& at, const OpCall& call) {
    const Type x = at.result(), dy = call.inputs[0];
    const PoolWindow pool = runtime::pool_window(call, x.rank() - 2);
    const bool has_all = pool.counts_padding || !is_padded(pool.window);
    Window window{.dims = pool.window.dims, .kernel = pool.window.kernel};
    Shape frame = x.shape;
    Ints begin{0, 0}, step{1, 1};
    float taps = 1;
    for (int axis = 0; axis < window.dims; ++axis) {
        const int64_t reach = window.kernel[axis] - 1;
        taps *= static_cast<float>(window.kernel[axis]);
        begin.push_back(reach - pool.window.padding[axis]);
        if (begin.back() < 0) return {};
        step.push_back(pool.window.stride[axis]);
        frame[axis + 2] += reach;
    }
    ValueId each =
        has_all ? at.constant({}, std::vector<float>{taps}) : at.counts(pool, x, dy.shape);
    if (at.type(each).dtype != x.dtype)
        each = at.make("cast", {each}, {std::string(info(x.dtype).name)});
    const ValueId shared = at.make("true_div", {at.operand(0), each});
    const ValueId spread = at.framed(shared, frame, begin, step, 0);
    return at.kernel(codegen::pool_kernel(at.type(spread), window, runtime::Reduce::sum, x),
                     {spread}, x);
}

std::vector<ValueId> batch_sums(NodeMaker& at, const OpCall& call) {
    if (call.inputs[0].dtype != DType::f32) return {};
    const Shape channels{call.inputs[0].shape[1]};
    Shape apart = call.inputs[0].shape;  // statistics beside x
    Ints within;
    for (int axis = 0; axis < apart.rank(); ++axis)
        if (axis != 1) {
            apart[axis] = 1;
            within.push_back(axis);
        }
    const auto reduced = [&](std::string_view op, ValueId value) {
        return at.make(op, {value}, {within, int64_t{1}});
    };
    const ValueId x = at.operand(0);
    if (call.op.name == "batch_norm_stats") {
        const ValueId mean = reduced("reduce_mean", x),
                      square = at.make("square", {at.make("sub", {x, mean})});
        return {at.reshaped(mean, channels), at.reshaped(reduced("reduce_mean", square), channels)};
    }
    const ValueId mean = at.reshaped(at.operand(1), apart), dy = at.operand(3),
                  eps = at.constant({}, std::vector<float>{static_cast<float>(call.real("eps"))}),
                  scale = at.make("rsqrt", {at.make("add", {at.operand(2), eps})}),
                  product = at.make("mul", {dy, at.make("sub", {x, mean})});
    return {at.make("mul", {at.reshaped(reduced("reduce_sum", product), channels), scale}),
            at.reshaped(reduced("reduce_sum", dy), channels)};
}

}  // namespace megjit::api
