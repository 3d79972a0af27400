#include "jit/api/static_lowering.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "codegen/op_kernel.h"
#include "codegen/strides.h"
#include "codegen/window_kernel.h"
#include "jit/api/static_gradients.h"
#include "jit/plan/passes/passes.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"
#include "runtime/ops/ordered.h"

namespace megjit::api {
namespace {

using codegen::BoundKernel;
using codegen::dense_strides;
using jit::Graph;
using jit::Node;
using jit::NodeKind;
using jit::Type;
using jit::ValueId;
using runtime::Attrs;
using runtime::cat;
using runtime::DType;
using runtime::OpCall;
using runtime::PoolWindow;
using runtime::Reduce;
using runtime::Shape;
using runtime::Window;
using Ints = std::vector<int64_t>;

class Lowering : NodeMaker {
public:
    using NodeMaker::NodeMaker;

    Graph run() {
        for (const Node& node : rewrite_.from.nodes()) {
            node_ = &node;
            const std::vector<ValueId> made = lowered();
            if (made.empty()) rewrite_.copy(node);
            for (size_t i = 0; i < made.size(); ++i) rewrite_.replace(node.outputs[i], made[i]);
        }
        return jit::drop_dead(rewrite_.finish());
    }

private:
    // Where this gives nothing, the op stays.
    std::vector<ValueId> lowered() {
        using Make = std::optional<ValueId> (Lowering::*)(const OpCall&);
        static const std::map<std::string_view, Make> makers = {
            {"conv", &Lowering::conv},
            {"conv_backward_data", &Lowering::transposed_conv},
            {"conv_backward_filter", &Lowering::gradient<filter_gradient>},
            {"max_pool", &Lowering::max_pool},
            {"avg_pool", &Lowering::avg_pool},
            {"max_pool_grad", &Lowering::gradient<max_pool_gradient>},
            {"avg_pool_grad", &Lowering::gradient<avg_pool_gradient>},
            {"adaptive_max_pool", &Lowering::adaptive_pool<Reduce::max>},
            {"adaptive_avg_pool", &Lowering::adaptive_pool<Reduce::mean>},
            {"index_get", &Lowering::index_get},
            {"gather", &Lowering::gather},
            {"pad", &Lowering::pad}};
        if (node_->kind != NodeKind::op) return {};
        const auto maker = makers.find(node_->op->name);
        const bool is_sums =
            node_->op->name == "batch_norm_stats" || node_->op->name == "batch_norm_grad_sums";
        if ((maker == makers.end() && !is_sums) || result().numel() == 0) return {};
        const std::vector<Type> types = rewrite_.from.types(node_->inputs);
        if (std::ranges::any_of(types, [](const Type& type) { return type.numel() == 0; }))
            return {};
        const OpCall call{*node_->op, node_->attrs, types};
        if (is_sums) return batch_sums(*this, call);
        const std::optional<ValueId> made = (this->*maker->second)(call);
        return made ? std::vector{*made} : std::vector<ValueId>();
    }

    template <std::optional<ValueId> (*made)(NodeMaker&, const OpCall&)>
    std::optional<ValueId> gradient(const OpCall& call) {
        return made(*this, call);
    }

    std::optional<ValueId> pad(const OpCall& call) {
        if (call.text("mode") != "constant") return {};
        const Ints& before = call.integers("before");
        return framed(operand(0), result().shape, before, Ints(before.size(), 1),
                      call.real("value"));
    }

    // ---- convolutions

    // A product of the weights with what places see. That is copied first, so that neighboring
    // places lie side by side; but not for kernels of one element, or of a single channel where
    // places lie so anyhow.
    ValueId convolved(ValueId x, ValueId w, Window window, int64_t groups) {
        x = padded(x, window, 0);
        const int last = window.dims - 1;
        const auto is_one = [&](const auto& values) {
            return std::all_of(values.begin(), values.begin() + window.dims,
                               [](int64_t value) { return value == 1; });
        };
        const Shape maps = type(x).shape, weights = type(w).shape;
        Shape y{maps[0], weights[0]};
        int64_t places = 1;
        for (int axis = 0; axis < window.dims; ++axis) {
            y.push_back(window.places(axis, maps[axis + 2]));
            places *= y[axis + 2];
        }
        const bool is_whole = is_one(window.kernel) && is_one(window.stride),
                   is_alone = weights[0] == groups && weights[1] == 1 && window.stride[last] == 1;
        Type made{type(x).dtype, y};
        if (!is_whole && !is_alone) {
            const int64_t taps = type(w).numel() / weights[0];
            const Type seen{made.dtype, {maps[0], taps * groups, places}};
            x = kernel(codegen::windows_kernel(type(x), window), {x}, seen);
            w = reshaped(w, {weights[0], taps, 1});
            window = {.dims = 1};
            made.shape = {maps[0], weights[0], places};
        }
        const runtime::ConvProblem problem{
            .x = type(x), .w = type(w), .y = made, .window = window, .groups = groups};
        return reshaped(kernel(codegen::conv_kernel(problem), {x, w}, made), y);
    }

    std::optional<ValueId> conv(const OpCall& call) {
        const runtime::ConvProblem problem = runtime::conv_problem(call, {&result(), 1});
        return convolved(operand(0), operand(1), problem.window, problem.groups);
    }

    // The convolution of dy, spread by the stride, with the weights mirrored, in and out exchanged.
    std::optional<ValueId> transposed_conv(const OpCall& call) {
        const runtime::ConvProblem problem =
            runtime::conv_problem(call, {&result(), 1}, runtime::ConvRole::data);
        const int64_t groups = problem.groups;
        const Shape w = problem.w.shape;
        Shape frame = problem.y.shape;
        Ints begin{0, 0}, step{1, 1}, from{0, 0}, to{problem.x.shape[1], w[0] / groups}, back{1, 1};
        Window window{.dims = problem.window.dims,
                      .kernel = problem.window.kernel,
                      .dilation = problem.window.dilation};
        for (int axis = 0; axis < window.dims; ++axis) {
            const int64_t reach = (window.kernel[axis] - 1) * window.dilation[axis];
            begin.push_back(reach - problem.window.padding[axis]);
            if (begin.back() < 0) return {};
            step.push_back(problem.window.stride[axis]);
            frame[axis + 2] = problem.x.shape[axis + 2] + reach;
            from.push_back(window.kernel[axis] - 1);
            to.push_back(-1);
            back.push_back(-1);
        }
        Shape parted{groups, w[0] / groups, w[1]}, mirrored{problem.x.shape[1], w[0] / groups};
        Ints order{0, 2, 1};
        for (int axis = 0; axis < window.dims; ++axis) {
            parted.push_back(w[axis + 2]);
            mirrored.push_back(w[axis + 2]);
            order.push_back(axis + 3);
        }
        ValueId weights = make("transpose", {reshaped(operand(1), parted)}, {order});
        weights = make("slice", {reshaped(weights, mirrored)}, {from, to, back});
        return convolved(framed(operand(0), frame, begin, step, 0), weights, window, groups);
    }

    // ---- pooling

    ValueId pooled(ValueId x, const Window& window, Reduce kind) {
        return kernel(codegen::pool_kernel(type(x), window, kind, result()), {x}, result());
    }

    std::optional<ValueId> max_pool(const OpCall& call) {
        Window window = runtime::pool_window(call, result().rank() - 2).window;
        const ValueId x = padded(operand(0), window, -std::numeric_limits<double>::infinity());
        return pooled(x, window, Reduce::max);
    }

    std::optional<ValueId> avg_pool(const OpCall& call) {
        const PoolWindow pool = runtime::pool_window(call, result().rank() - 2);
        Window window = pool.window;
        const ValueId x = padded(operand(0), window, 0);
        if (pool.counts_padding || !is_padded(pool.window)) return pooled(x, window, Reduce::mean);
        return make("true_div",
                    {pooled(x, window, Reduce::sum), counts(pool, call.inputs[0], result().shape)});
    }

    // Parts of one extent are windows; others are cut axis by axis.
    template <Reduce kind>
    std::optional<ValueId> adaptive_pool(const OpCall& call) {
        const Shape in = call.inputs[0].shape, out = result().shape;
        Window window{.dims = in.rank() - 2};
        bool is_even = true;
        for (int axis = 0; axis < window.dims; ++axis) {
            window.kernel[axis] = window.stride[axis] = in[axis + 2] / out[axis + 2];
            is_even = is_even && in[axis + 2] % out[axis + 2] == 0;
        }
        if (is_even) return pooled(operand(0), window, kind);
        ValueId x = operand(0);
        for (int axis = 2; axis < in.rank(); ++axis) x = cut(x, axis, out[axis], kind);
        return type(x).dtype == result().dtype
                   ? x
                   : make("cast", {x}, {std::string(info(result().dtype).name)});
    }
    ValueId cut(ValueId x, int axis, int64_t places, Reduce kind) {
        const Shape shape = type(x).shape;
        const PoolWindow pool{.is_adaptive = true};
        std::vector<ValueId> parts;
        for (int64_t o = 0; o < places; ++o) {
            Ints begin(static_cast<size_t>(shape.rank()), 0), end = ints(shape);
            const auto [first, last] = pool.range(axis - 2, o, shape[axis], places);
            begin[static_cast<size_t>(axis)] = first;
            end[static_cast<size_t>(axis)] = last;
            const ValueId part = make("slice", {x}, {begin, end, Ints(begin.size(), 1)});
            parts.push_back(make(kind == Reduce::max ? "reduce_max" : "reduce_mean", {part},
                                 {Ints{axis}, int64_t{1}}));
        }
        return parts.size() == 1 ? parts[0] : make("concat", std::move(parts), {int64_t{axis}});
    }

    // ---- lookups

    ValueId checked(size_t i, int64_t axis, int64_t extent) {
        return make("checked_index", {operand(i)}, {axis, extent, node_->op->name});
    }

    std::optional<ValueId> gather(const OpCall& call) {
        const Type& x = call.inputs[0];
        const int axis = runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name);
        codegen::Lookup lookup{.strides = dense_strides(x),
                               .place_strides = dense_strides(result())};
        lookup.step = std::exchange(lookup.strides[static_cast<size_t>(axis)], 0);
        return kernel(codegen::lookup_kernel(result(), std::move(lookup)),
                      {operand(0), checked(1, axis, x.shape[axis])}, result());
    }

    // Several places of an element are one, in x as it lies in memory.
    std::optional<ValueId> index_get(const OpCall& call) {
        const Type& x = call.inputs[0];
        const Ints &axes = call.integers("axes"), strides = dense_strides(x);
        if (x.numel() > std::numeric_limits<int32_t>::max()) return {};
        std::optional<ValueId> place;
        uint32_t indexed = 0;
        bool is_adjacent = true;
        for (size_t k = 0; k < axes.size(); ++k) {
            ValueId one = checked(k + 1, axes[k], x.shape[static_cast<int>(axes[k])]);
            if (axes.size() > 1)
                one = make("mul", {one, constant({}, std::vector<int32_t>{static_cast<int32_t>(
                                                         strides[static_cast<size_t>(axes[k])])})});
            place = place ? make("add", {*place, one}) : one;
            indexed |= 1u << axes[k];
            is_adjacent = is_adjacent && (k == 0 || axes[k] == axes[k - 1] + 1);
        }
        const Ints own = dense_strides(type(*place));
        codegen::Lookup lookup;
        lookup.step = axes.size() > 1 ? 1 : strides[static_cast<size_t>(axes[0])];
        const auto add_places = [&] {
            lookup.strides.insert(lookup.strides.end(), own.size(), 0);
            lookup.place_strides.insert(lookup.place_strides.end(), own.begin(), own.end());
        };
        if (!is_adjacent) add_places();
        for (int axis = 0; axis < x.rank(); ++axis) {
            if (is_adjacent && axis == axes[0]) add_places();
            if (indexed >> axis & 1u) continue;
            lookup.strides.push_back(strides[static_cast<size_t>(axis)]);
            lookup.place_strides.push_back(0);
        }
        return kernel(codegen::lookup_kernel(result(), std::move(lookup)), {operand(0), *place},
                      result());
    }
};

// Constants are computed here where that makes no more of them.
Graph with_fixed_values(const Graph& graph) {
    jit::Rewriter rewrite(graph);
    for (const Node& node : graph.nodes()) {
        bool is_fixed = node.kind == NodeKind::op && !node.inputs.empty() &&
                        !runtime::is_ordered(*node.op) && !node.op->is_data_dependent();
        std::vector<runtime::TensorRef> operands;
        size_t read = 0, made = 0;
        for (size_t i = 0; is_fixed && i < node.inputs.size(); ++i) {
            operands.push_back(rewrite.to.producer(rewrite.map(node.inputs[i])).constant);
            is_fixed = operands.back() != nullptr;
            read += graph.type(node.inputs[i]).bytes();
        }
        for (const ValueId output : node.outputs) made += graph.type(output).bytes();
        if (!is_fixed || made > read) {
            rewrite.copy(node);
            continue;
        }
        const auto results = runtime::compute(*node.op, node.attrs, operands);
        for (size_t i = 0; i < results.size(); ++i)
            rewrite.replace(node.outputs[i], rewrite.to.add_constant(results[i]));
    }
    return rewrite.finish();
}

std::optional<BoundKernel> kernel_of(const Graph& graph, const Node& node) {
    const std::vector<Type> inputs = graph.types(node.inputs), outputs = graph.types(node.outputs);
    const OpCall call{*node.op, node.attrs, inputs};
    if (node.op == &runtime::ops::full()) return codegen::full_kernel(call, outputs[0]);
    std::optional<BoundKernel> kernel = codegen::kernel_of(call, outputs);
    return kernel ? std::move(kernel) : codegen::contraction_kernel(call, outputs);
}

}  // namespace

Graph without_windows(const Graph& graph) {
    return with_fixed_values(Lowering(with_fixed_values(graph)).run());
}

bool is_written(const Node& node) {
    return node.op && (node.op == &runtime::ops::concat() || node.op == &runtime::ops::slice() ||
                       node.op == &runtime::ops::slice_set() || node.op->only_checks);
}

Graph with_kernels(const Graph& graph) {
    const Node* without = nullptr;
    jit::Rewriter rewrite(graph);
    for (const Node& node : graph.nodes()) {
        std::optional<BoundKernel> kernel;
        if (node.kind == NodeKind::op && !node.op->is_view && !is_written(node)) {
            kernel = kernel_of(graph, node);
            if (!kernel && (!without || without->op == &runtime::ops::relayout())) without = &node;
        }
        if (!kernel) {
            rewrite.copy(node);
            continue;
        }
        Node fused{.kind = NodeKind::fused,
                   .inputs = rewrite.map(node.inputs),
                   .kernel = std::make_shared<const BoundKernel>(std::move(*kernel)),
                   .ops = {node.op->name},
                   .where = node.where};
        const auto made = rewrite.to.add(std::move(fused), graph.types(node.outputs));
        for (size_t i = 0; i < made.size(); ++i) rewrite.replace(node.outputs[i], made[i]);
    }
    if (!without) return rewrite.finish();
    runtime::user_error(
        {.what = cat("static code: no generated kernel computes ", without->op->name,
                     without->where.empty() ? "" : cat(" (", without->where, ")")),
         .fix = "load the dump by libmegjit, which has it"});
}

}  // namespace megjit::api
