#include "backends/cuda/products/cudnn_problems.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backends/cuda/products/cudnn_parts.h"
#include "runtime/host/error.h"
#include "runtime/ops/conv.h"
#include "runtime/ops/pool.h"

namespace megjit::cuda::cudnn {
namespace {

using runtime::cat;
using runtime::ConvProblem;
using runtime::ConvRole;
using runtime::DType;
using runtime::EpilogueKind;
using runtime::Layout;
using runtime::OpCall;
using runtime::Type;

Dims strides_of(const Dims& dims, Layout layout) {
    if (layout != Layout::channels_last) return row_major(dims);
    Dims strides(dims.size());
    int64_t step = 1;
    const auto next = [&](size_t axis) { strides[axis] = std::exchange(step, step * dims[axis]); };
    next(1);
    for (size_t axis = dims.size(); axis-- > 2;) next(axis);
    next(0);
    return strides;
}

// Describes [n, c, spatial...] with at least two spatial axes.
TensorSpec activation(const Type& type, Place place, int index = 0) {
    if (is_packed(type.layout))
        throw NoGraph{cat("cuDNN does not know the layout of ", to_string(type))};
    Dims dims(type.shape.begin(), type.shape.end());
    while (dims.size() < 4)
        dims.insert(dims.begin() + std::min<ptrdiff_t>(2, dims.end() - dims.begin()), 1);
    return {.type = data_type(type),
            .dims = dims,
            .strides = strides_of(dims, type.layout),
            .place = place,
            .index = index};
}

// Describes a tensor of one number for each channel.
TensorSpec channels(const Type& type, size_t rank, Place place, int index) {
    Dims dims(rank, 1), strides(rank, 1);
    dims[1] = type.numel();
    strides[0] = dims[1];
    return {
        .type = data_type(type), .dims = dims, .strides = strides, .place = place, .index = index};
}

void check_not_empty(const OpCall& call, Outputs outputs) {
    const auto is_empty = [](const Type& type) { return type.numel() == 0; };
    if (std::any_of(call.inputs.begin(), call.inputs.end(), is_empty) ||
        std::any_of(outputs.begin(), outputs.end(), is_empty))
        throw NoGraph{"nothing is computed of nothing"};
}

// --- convolution -------------------------------------------------------------------------------

// Weights that are both channels-last and row-major, as those of 1x1, are described with the layout
// of the activations: then cuDNN does not copy them.
TensorSpec weights(const Type& type, const Type& x, Place place, int index) {
    TensorSpec w = activation(type, place, index);
    const Dims last = strides_of(w.dims, Layout::channels_last);
    bool lies_alike = x.layout == Layout::channels_last;
    for (size_t axis = 0; axis < w.dims.size(); ++axis)
        lies_alike = lies_alike && (w.dims[axis] == 1 || w.strides[axis] == last[axis]);
    if (lies_alike) w.strides = last;
    return w;
}

struct ConvGraph {
    Graph graph;
    int x = 0, w = 0, y = 0;
};

// Makes a graph with the operands of the role, and no operation yet.
ConvGraph conv_graph(const ConvProblem& p, ConvRole role) {
    const auto place = [&](ConvRole result) {
        return role == result ? Place::output : Place::input;
    };
    ConvGraph made;
    made.x = made.graph.add(activation(p.x, place(ConvRole::data), 0));
    made.w = made.graph.add(
        weights(p.w, p.x, place(ConvRole::filter), role == ConvRole::filter ? 0 : 1));
    made.y =
        made.graph.add(activation(p.y, place(ConvRole::forward), role == ConvRole::filter ? 1 : 0));
    return made;
}

template <ConvRole role>
Problems conv_problems(const OpCall& call, Outputs outputs) {
    const ConvProblem p = runtime::conv_problem(call, outputs, role);
    ConvGraph c = conv_graph(p, role);
    c.graph.conv(role, c.x, c.w, c.y, p.window);
    return {{{c.graph}, {}}};
}

Problems conv_stats_problems(const OpCall& call, Outputs outputs) {
    const ConvProblem p = runtime::conv_problem(call, outputs);
    ConvGraph c = conv_graph(p, ConvRole::forward);
    const size_t rank = c.graph.tensors[static_cast<size_t>(c.y)].dims.size();
    const int elements = c.graph.add(channels(outputs[1], rank, Place::output, 1)),
              squares = c.graph.add(channels(outputs[2], rank, Place::output, 2));
    c.graph.conv(ConvRole::forward, c.x, c.w, c.y, p.window);
    c.graph.sums(c.y, elements, squares);
    return {{{c.graph}, {}}};
}

// Adds the steps of an epilogue, from tensor `from` to `to`.
void add_steps(Graph& graph, const OpCall& call, const ConvProblem& p, int from, int to) {
    const size_t rank = graph.tensors[static_cast<size_t>(to)].dims.size();
    for (size_t i = 0; i < p.steps.size(); ++i) {
        const runtime::EpilogueStep& step = p.steps[i];
        std::vector<int> terms{from};
        const auto index = static_cast<int>(step.operand);
        if (step.kind == EpilogueKind::bias)
            terms.push_back(
                graph.add(channels(call.inputs[step.operand], rank, Place::input, index)));
        if (step.kind == EpilogueKind::add || step.kind == EpilogueKind::mask)
            terms.push_back(graph.add(activation(call.inputs[step.operand], Place::input, index)));
        from = i + 1 == p.steps.size() ? to : graph.inside(DataType::f32, to);
        if (step.kind == EpilogueKind::mask) graph.relu_gradient(terms[1], terms[0], from);
        else
            graph.pointwise(step.takes_operand() ? PointwiseMode::add : PointwiseMode::relu, terms,
                            from);
    }
}

// The first way is one kernel for all; in the second, the steps are in a kernel of their own.
template <ConvRole role>
Problems conv_epilogue_problems(const OpCall& call, Outputs outputs) {
    const ConvProblem p = runtime::conv_problem(call, outputs, role);
    if (p.steps.empty()) return conv_problems<role>(call, outputs);
    const auto result_of = [](ConvGraph& c) -> int& {
        return role == ConvRole::forward ? c.y : c.x;
    };
    ConvGraph fused = conv_graph(p, role);
    const int result = result_of(fused);
    result_of(fused) = fused.graph.inside(DataType::f32, result);
    fused.graph.conv(role, fused.x, fused.w, fused.y, p.window);
    add_steps(fused.graph, call, p, result_of(fused), result);

    Problem apart;
    ConvGraph plain = conv_graph(p, role);
    TensorSpec& product = plain.graph.tensors[static_cast<size_t>(result_of(plain))];
    Graph steps;
    const int to = steps.add(product), from = steps.add(apart.scratch(product));
    product = steps.tensors[static_cast<size_t>(from)];
    plain.graph.conv(role, plain.x, plain.w, plain.y, p.window);
    add_steps(steps, call, p, from, to);
    apart.steps = {plain.graph, steps};
    return {{{fused.graph}, {}}, apart};
}

// The gradient of the data with its steps, and of what is stored the sums that the gradient of a
// batch norm needs.
Problems conv_sums_problems(const OpCall& call, Outputs outputs) {
    const OpCall gradient = runtime::gradient_of_sums(call);
    const ConvProblem p = runtime::conv_problem(gradient, outputs, ConvRole::data);
    for (int axis = 0; axis < p.window.dims; ++axis)
        if (p.window.stride[static_cast<size_t>(axis)] != 1)
            throw NoGraph{"cuDNN adds up no gradients of convolutions with strides"};
    ConvGraph c = conv_graph(p, ConvRole::data);
    const TensorSpec& w = c.graph.tensors[static_cast<size_t>(c.w)];
    if (w.strides != strides_of(w.dims, Layout::channels_last))
        throw NoGraph{"cuDNN adds up no gradients of convolutions whose weights are row-major"};
    const int stored = std::exchange(c.x, c.graph.inside(DataType::f32, c.x));
    c.graph.conv(ConvRole::data, c.x, c.w, c.y, p.window);
    if (p.steps.empty()) c.graph.pointwise(PointwiseMode::identity, {c.x}, stored);
    else add_steps(c.graph, gradient, p, c.x, stored);
    const size_t rank = c.graph.tensors[static_cast<size_t>(stored)].dims.size();
    const auto add_sum = [&](int of, size_t output) {
        const auto index = static_cast<int>(output);
        c.graph.reduce(ReduceMode::sum, of,
                       c.graph.add(channels(outputs[output], rank, Place::output, index)));
    };
    const auto inside = [&] { return c.graph.inside(DataType::f32, stored); };
    for (size_t i = gradient.inputs.size(), output = 2; output < outputs.size(); i += 2, ++output) {
        const auto index = static_cast<int>(i);
        const int x = c.graph.add(activation(call.inputs[i], Place::input, index)),
                  mean = c.graph.add(channels(call.inputs[i + 1], rank, Place::input, index + 1)),
                  apart = inside(), product = inside();
        c.graph.pointwise(PointwiseMode::sub, {x, mean}, apart);
        c.graph.pointwise(PointwiseMode::mul, {stored, apart}, product);
        add_sum(product, output);
    }
    add_sum(stored, 1);
    return {{{c.graph}, {}}};
}

// --- pooling -----------------------------------------------------------------------------------

runtime::PoolWindow fixed_window(const OpCall& call) {
    const runtime::PoolWindow window = runtime::pool_window(call, call.inputs[0].rank() - 2);
    if (window.is_adaptive) throw NoGraph{"cuDNN has no adaptive pooling"};
    return window;
}

ResampleMode mean_mode(const runtime::PoolWindow& window) {
    return window.counts_padding ? ResampleMode::mean_with_padding : ResampleMode::mean;
}

// cuDNN pools channels-last images. A row-major image is described as many images of one channel.
TensorSpec pooled(const Type& type, Place place, int index = 0) {
    TensorSpec image = activation(type, place, index);
    if (type.layout == Layout::channels_last) return image;
    image.dims[0] *= std::exchange(image.dims[1], 1);
    image.strides = strides_of(image.dims, Layout::channels_last);
    return image;
}

Problems pool_problems(const OpCall& call, Outputs outputs, bool is_max) {
    const runtime::PoolWindow window = fixed_window(call);
    Graph graph;
    const int x = graph.add(pooled(call.inputs[0], Place::input)),
              y = graph.add(pooled(outputs[0], Place::output));
    graph.pool(is_max ? ResampleMode::max : mean_mode(window), x, y, -1, window.window);
    return {{{graph}, {}}};
}

Problems max_pool_problems(const OpCall& call, Outputs outputs) {
    return pool_problems(call, outputs, true);
}
Problems avg_pool_problems(const OpCall& call, Outputs outputs) {
    return pool_problems(call, outputs, false);
}

Problems avg_pool_grad_problems(const OpCall& call, Outputs outputs) {
    const runtime::PoolWindow window = fixed_window(call);
    Graph graph;
    const int dy = graph.add(pooled(call.inputs[0], Place::input)),
              dx = graph.add(pooled(outputs[0], Place::output));
    graph.pool_grad(mean_mode(window), {.dy = dy, .dx = dx}, window.window);
    return {{{graph}, {}}};
}

// cuDNN wants the places of the largest elements, or the result, which is computed again.
Problems max_pool_grad_problems(const OpCall& call, Outputs outputs) {
    const runtime::Window window = fixed_window(call).window;
    const TensorSpec x = pooled(call.inputs[0], Place::input, 0),
                     dy = pooled(call.inputs[1], Place::input, 1),
                     dx = pooled(outputs[0], Place::output);
    Problems ways;
    const Dims kernel(window.kernel.begin(), window.kernel.end());
    for (const bool by_index : {true, false}) {
        if (by_index && count_of(kernel) > 127) continue;  // an index is a signed byte
        Problem problem;
        Graph forward, backward;
        const TensorSpec y = problem.scratch(dy);
        TensorSpec index = dy;
        index.type = DataType::i8;
        if (by_index) index = problem.scratch(index);
        const int fx = forward.add(x), fy = forward.add(y);
        forward.pool(ResampleMode::max, fx, fy, by_index ? forward.add(index) : -1, window);
        Graph::PoolGrad grad{.dy = backward.add(dy), .dx = backward.add(dx)};
        if (by_index) grad.index = backward.add(index);
        else grad.x = backward.add(x), grad.y = backward.add(y);
        backward.pool_grad(ResampleMode::max, grad, window);
        problem.steps = {forward, backward};
        ways.push_back(std::move(problem));
    }
    return ways;
}

// --- norms -------------------------------------------------------------------------------------

void check_float32(const Type& weights) {
    if (weights.dtype != DType::f32)
        throw NoGraph{
            cat("cuDNN takes the weights of a norm in float32, not ", to_string(weights))};
}

// Computes var = max(1 / rstd^2 - eps, 0), for cuDNN gives no variance.
Graph variance_of(const TensorSpec& rstd, const TensorSpec& var, float eps) {
    Graph graph;
    const int r = graph.add(rstd), v = graph.add(var);
    const int square = graph.inside(DataType::f32, r), inverse = graph.inside(DataType::f32, r),
              less = graph.inside(DataType::f32, r);
    const size_t rank = rstd.dims.size();
    graph.pointwise(PointwiseMode::mul, {r, r}, square);
    graph.pointwise(PointwiseMode::reciprocal, {square}, inverse);
    graph.pointwise(PointwiseMode::sub, {inverse, graph.number(eps, rank)}, less);
    graph.pointwise(PointwiseMode::max, {less, graph.number(0, rank)}, v);
    return graph;
}

Graph rstd_of(const TensorSpec& var, const TensorSpec& rstd, float eps) {
    Graph graph;
    const int v = graph.add(var), r = graph.add(rstd), sum = graph.inside(DataType::f32, v);
    graph.pointwise(PointwiseMode::add, {v, graph.number(eps, var.dims.size())}, sum);
    graph.pointwise(PointwiseMode::rsqrt, {sum}, r);
    return graph;
}

Problems batch_norm_problems(const OpCall& call, Outputs outputs) {
    check_float32(call.inputs[1]), check_float32(call.inputs[2]);
    const auto eps = static_cast<float>(call.real("eps"));
    const TensorSpec x = activation(call.inputs[0], Place::input);
    const size_t rank = x.dims.size();
    Problem problem;
    const TensorSpec var = channels(outputs[2], rank, Place::output, 2),
                     rstd = problem.scratch(var);
    Graph graph;
    Graph::Norm norm;
    norm.x = graph.add(x);
    norm.scale = graph.add(channels(call.inputs[1], rank, Place::input, 1));
    norm.bias = graph.add(channels(call.inputs[2], rank, Place::input, 2));
    norm.eps = graph.number(eps, rank);
    norm.y = graph.add(activation(outputs[0], Place::output));
    norm.mean = graph.add(channels(outputs[1], rank, Place::output, 1));
    norm.rstd = graph.add(rstd);
    graph.norm(NormMode::batch, norm);
    problem.steps = {graph, variance_of(rstd, var, eps)};
    return {problem};
}

Problems batch_norm_grad_problems(const OpCall& call, Outputs outputs) {
    check_float32(call.inputs[3]);
    const TensorSpec x = activation(call.inputs[0], Place::input);
    const size_t rank = x.dims.size();
    Problem problem;
    const TensorSpec var = channels(call.inputs[2], rank, Place::input, 2),
                     rstd = problem.scratch(var);
    Graph graph;
    Graph::NormGrad grad;
    grad.x = graph.add(x);
    grad.mean = graph.add(channels(call.inputs[1], rank, Place::input, 1));
    grad.rstd = graph.add(rstd);
    grad.scale = graph.add(channels(call.inputs[3], rank, Place::input, 3));
    grad.dy = graph.add(activation(call.inputs[4], Place::input, 4));
    grad.dx = graph.add(activation(outputs[0], Place::output));
    grad.dscale = graph.add(channels(outputs[1], rank, Place::output, 1));
    grad.dbias = graph.add(channels(outputs[2], rank, Place::output, 2));
    graph.norm_grad(NormMode::batch, grad);
    problem.steps = {rstd_of(var, rstd, static_cast<float>(call.real("eps"))), graph};
    return {problem};
}

Problems batch_stats_problems(const OpCall&, Outputs) {
    throw NoGraph{
        "cuDNN's statistics are sums of squares, which cancel; a kernel of ours is exact"};
}

// Rows of x in the form in which cuDNN normalizes them: [rows, elements, 1, 1].
struct LayerRows {
    LayerRows(const OpCall& call, const Type& x) {
        if (!call.flag("affine"))
            throw NoGraph{"cuDNN's layer norm has weights; this one has none"};
        if (x.layout != Layout::row_major)
            throw NoGraph{cat("cuDNN normalizes rows of row-major tensors, not of ", to_string(x))};
        for (int axis = 0; axis < x.rank(); ++axis)
            (axis < x.rank() - call.integer("axes") ? rows : elements) *= x.shape[axis];
    }
    TensorSpec whole(const Type& type, Place place, int index) const {
        return {data_type(type), {rows, elements, 1, 1}, {elements, 1, 1, 1}, place, index};
    }
    TensorSpec stat(const Type& type, Place place, int index) const {
        return {data_type(type), {rows, 1, 1, 1}, {1, 1, 1, 1}, place, index};
    }
    TensorSpec weight(const Type& type, Place place, int index) const {
        check_float32(type);
        return {data_type(type), {1, elements, 1, 1}, {elements, 1, 1, 1}, place, index};
    }
    int64_t rows = 1, elements = 1;
};

Problems layer_norm_problems(const OpCall& call, Outputs outputs) {
    const LayerRows rows(call, call.inputs[0]);
    Graph graph;
    Graph::Norm norm;
    norm.x = graph.add(rows.whole(call.inputs[0], Place::input, 0));
    norm.scale = graph.add(rows.weight(call.inputs[1], Place::input, 1));
    norm.bias = graph.add(rows.weight(call.inputs[2], Place::input, 2));
    norm.eps = graph.number(static_cast<float>(call.real("eps")), 4);
    norm.y = graph.add(rows.whole(outputs[0], Place::output, 0));
    norm.mean = graph.add(rows.stat(outputs[1], Place::output, 1));
    norm.rstd = graph.add(rows.stat(outputs[2], Place::output, 2));
    graph.norm(NormMode::layer, norm);
    return {{{graph}, {}}};
}

Problems layer_norm_grad_problems(const OpCall& call, Outputs outputs) {
    const LayerRows rows(call, call.inputs[0]);
    Graph graph;
    Graph::NormGrad grad;
    grad.x = graph.add(rows.whole(call.inputs[0], Place::input, 0));
    grad.mean = graph.add(rows.stat(call.inputs[1], Place::input, 1));
    grad.rstd = graph.add(rows.stat(call.inputs[2], Place::input, 2));
    grad.dy = graph.add(rows.whole(call.inputs[3], Place::input, 3));
    grad.scale = graph.add(rows.weight(call.inputs[4], Place::input, 4));
    grad.dx = graph.add(rows.whole(outputs[0], Place::output, 0));
    grad.dscale = graph.add(rows.weight(outputs[1], Place::output, 1));
    grad.dbias = graph.add(rows.weight(outputs[2], Place::output, 2));
    graph.norm_grad(NormMode::layer, grad);
    return {{{graph}, {}}};
}

struct Maker {
    std::string_view op;
    Problems (*make)(const OpCall&, Outputs);
};
constexpr Maker kMakers[] = {
    {"conv", conv_problems<ConvRole::forward>},
    {"conv_backward_data", conv_problems<ConvRole::data>},
    {"conv_backward_filter", conv_problems<ConvRole::filter>},
    {"conv_epilogue", conv_epilogue_problems<ConvRole::forward>},
    {"conv_backward_data_epilogue", conv_epilogue_problems<ConvRole::data>},
    {"conv_backward_data_sums", conv_sums_problems},
    {"conv_stats", conv_stats_problems},
    {"max_pool", max_pool_problems},
    {"max_pool_grad", max_pool_grad_problems},
    {"avg_pool", avg_pool_problems},
    {"avg_pool_grad", avg_pool_grad_problems},
    {"batch_norm", batch_norm_problems},
    {"batch_norm_grad", batch_norm_grad_problems},
    {"batch_norm_stats", batch_stats_problems},
    {"batch_norm_grad_sums", batch_stats_problems},
    {"layer_norm", layer_norm_problems},
    {"layer_norm_grad", layer_norm_grad_problems},
    {"attention", attention_problems},
    {"attention_grad", attention_grad_problems},
    {"attention_of_parts", attention_problems},
    {"attention_grad_of_parts", attention_grad_problems},
};

}  // namespace

DataType data_type(const Type& type) {
    switch (type.dtype) {
        case DType::f32: return DataType::f32;
        case DType::f16: return DataType::f16;
        case DType::bf16: return DataType::bf16;
        default: throw NoGraph{cat("cuDNN computes no ", to_string(type))};
    }
}

TensorSpec Problem::scratch(TensorSpec like) {
    like.place = Place::scratch;
    like.index = static_cast<int>(scratch_bytes.size());
    scratch_bytes.push_back(like.bytes());
    return like;
}

std::vector<Problem> problems_of(const OpCall& call, Outputs outputs, std::string* why_not) {
    const auto maker = std::find_if(std::begin(kMakers), std::end(kMakers),
                                    [&](const Maker& m) { return m.op == call.op.name; });
    try {
        if (maker == std::end(kMakers)) throw NoGraph{cat("cuDNN has no ", call.op.name)};
        check_not_empty(call, outputs);
        return maker->make(call, outputs);
    } catch (const NoGraph& none) {
        *why_not = none.why;
        return {};
    }
}

}  // namespace megjit::cuda::cudnn
