#include "backends/cuda/products/cudnn_graph.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "runtime/host/error.h"

namespace megjit::cuda::cudnn {
namespace {

using runtime::cat;
using runtime::ConvRole;
using runtime::Window;

size_t size_of(DataType type) {
    switch (type) {
        case DataType::f32:
        case DataType::i32: return 4;
        case DataType::f16:
        case DataType::bf16: return 2;
        case DataType::i8:
        case DataType::b1: return 1;
    }
    return 0;
}

// cuDNN wants at least two spatial axes; a single one is written as [1, extent].
Dims spatial(const Window& window, const std::array<int64_t, 3>& values, int64_t neutral) {
    Dims dims(values.begin(), values.begin() + window.dims);
    if (window.dims == 1) dims.insert(dims.begin(), neutral);
    return dims;
}
int64_t axes(const Window& window) { return std::max(window.dims, 2); }

std::vector<Setting> resample_settings(ResampleMode mode, const Window& window) {
    const bool is_max = mode == ResampleMode::max;
    return {{kResampleMode, choice(mode)},
            {kResampleMath, choice(DataType::f32)},
            {kResampleDims, axes(window)},
            {kResampleNan, choice(NanPropagation::yes)},
            {kResamplePadding, choice(is_max ? PaddingMode::negative_infinity : PaddingMode::zero)},
            {kResampleStrides, spatial(window, window.stride, 1)},
            {kResampleWindow, spatial(window, window.kernel, 1)},
            {kResamplePaddingBefore, spatial(window, window.padding, 0)},
            {kResamplePaddingAfter, spatial(window, window.padding, 0)}};
}

void set_all(Descriptor& descriptor, const std::vector<Setting>& settings) {
    for (const Setting& setting : settings)
        std::visit([&](const auto& value) { descriptor.set(setting.name, value); }, setting.value);
}

std::string print(const Dims& dims) {
    std::string text;
    for (int64_t extent : dims) text += cat(text.empty() ? "" : ",", extent);
    return cat("[", text, "]");
}
std::string print(const std::variant<Choice, int64_t, Dims, float>& value) {
    if (const auto* c = std::get_if<Choice>(&value)) return cat("#", c->value);
    if (const auto* n = std::get_if<int64_t>(&value)) return cat(*n);
    if (const auto* d = std::get_if<Dims>(&value)) return print(*d);
    return cat(std::get<float>(value), "f");
}
std::string print(const std::vector<Setting>& settings) {
    std::string text;
    for (const Setting& setting : settings)
        text += cat(" ", setting.name, "=", print(setting.value));
    return text;
}

Descriptor tensor_descriptor(const Library& library, const TensorSpec& tensor, int64_t id) {
    Descriptor made(library, Kind::tensor);
    made.set(kTensorType, choice(tensor.type))
        .set(kTensorDims, tensor.dims)
        .set(kTensorStrides, tensor.strides)
        .set(kTensorId, id)
        .set(kTensorAlignment, kAlignment)
        .set(kTensorIsVirtual, tensor.place == Place::inside)
        .set(kTensorIsByValue, tensor.place == Place::number)
        .finalize(cat("a tensor of ", print(tensor.dims)));
    return made;
}

// Checks rule G4 for the operation; tensors are given by the names of their ports.
std::string norm_fault(const Graph& graph, const Operation& op, int x_name, int mean_name,
                       int mode_name, std::initializer_list<int> weights) {
    const auto dims = [&](int name) -> const Dims& {
        const auto port = std::find_if(op.ports.begin(), op.ports.end(),
                                       [&](const Port& p) { return p.name == name; });
        return graph.tensors[static_cast<size_t>(port->tensor)].dims;
    };
    const bool is_batch =
        std::any_of(op.settings.begin(), op.settings.end(), [&](const Setting& setting) {
        return setting.name == mode_name &&
               std::get<Choice>(setting.value) == choice(NormMode::batch);
    });
    const Dims& x = dims(x_name);
    Dims stats(x.size(), 1), weight(x.size(), 1);
    for (size_t axis = 0; axis < x.size(); ++axis) {
        if (is_batch) stats[axis] = weight[axis] = axis == 1 ? x[axis] : 1;
        else (axis == 0 ? stats : weight)[axis] = x[axis];
    }
    for (int name : weights)
        if (dims(name) != weight)
            return cat("G4: a norm of ", print(x), " has weights of ", print(dims(name)),
                       " in place of ", print(weight));
    if (dims(mean_name) != stats)
        return cat("G4: a norm of ", print(x), " has statistics of ", print(dims(mean_name)),
                   " in place of ", print(stats));
    return "";
}

}  // namespace

Dims row_major(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
    return strides;
}

int64_t count_of(const Dims& dims) {
    return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

size_t TensorSpec::bytes() const { return static_cast<size_t>(count_of(dims)) * size_of(type); }

int Graph::add(TensorSpec tensor) {
    tensors.push_back(std::move(tensor));
    return static_cast<int>(tensors.size()) - 1;
}

int Graph::number(float value, size_t rank) {
    return add(
        {.dims = Dims(rank, 1), .strides = Dims(rank, 1), .place = Place::number, .number = value});
}

int Graph::inside(DataType type, int like) {
    const TensorSpec& of = tensors[static_cast<size_t>(like)];
    return add({.type = type, .dims = of.dims, .strides = of.strides});
}

void Graph::conv(ConvRole role, int x, int w, int y, const Window& window) {
    Kind kind = Kind::conv_forward;
    int first = kConvForward;
    if (role == ConvRole::data) kind = Kind::conv_data, first = kConvData;
    if (role == ConvRole::filter) kind = Kind::conv_filter, first = kConvFilter;
    // All three have alpha, beta, description, w, x and y in this order; gradients take the places
    // of their tensors.
    operations.push_back({.kind = kind,
                          .ports = {{first + 3, w, role == ConvRole::filter},
                                    {first + 4, x, role == ConvRole::data},
                                    {first + 5, y, role == ConvRole::forward}},
                          .settings = {{first, 1.0f}, {first + 1, 0.0f}},
                          .description = Operation::Description{
                              Kind::convolution,
                              first + 2,
                              {{kConvolutionDims, axes(window)},
                               {kConvolutionMath, choice(DataType::f32)},
                               {kConvolutionMode, choice(ConvolutionMode::cross_correlation)},
                               {kConvolutionPaddingBefore, spatial(window, window.padding, 0)},
                               {kConvolutionPaddingAfter, spatial(window, window.padding, 0)},
                               {kConvolutionStrides, spatial(window, window.stride, 1)},
                               {kConvolutionDilations, spatial(window, window.dilation, 1)}}}});
}

int Graph::inside(DataType type, const Dims& dims) {
    return add({.type = type, .dims = dims, .strides = row_major(dims)});
}

void Graph::pointwise(PointwiseMode mode, std::vector<int> inputs, int output, int64_t axis) {
    const DataType made = tensors[static_cast<size_t>(output)].type;
    const bool in_own_type = made == DataType::i32 || made == DataType::b1;
    Operation op{.kind = Kind::pointwise_op,
                 .ports = {{kPointwiseX, inputs[0]}, {kPointwiseY, output, true}},
                 .description = Operation::Description{
                     Kind::pointwise,
                     kPointwiseDescription,
                     {{kPointwiseMode, choice(mode)},
                      {kPointwiseMath, choice(in_own_type ? made : DataType::f32)}}}};
    if (inputs.size() > 1) op.ports.push_back({kPointwiseB, inputs[1]});
    if (inputs.size() > 2) op.ports.push_back({kPointwiseT, inputs[2]});
    if (axis >= 0) op.description->settings.push_back({kPointwiseAxis, axis});
    if (mode == PointwiseMode::relu)
        op.description->settings.push_back({kPointwiseNan, choice(NanPropagation::yes)});
    operations.push_back(std::move(op));
}

void Graph::relu_gradient(int y, int dy, int dx) {
    operations.push_back({.kind = Kind::pointwise_op,
                          .ports = {{kPointwiseX, y}, {kPointwiseDy, dy}, {kPointwiseDx, dx, true}},
                          .description = Operation::Description{
                              Kind::pointwise,
                              kPointwiseDescription,
                              {{kPointwiseMode, choice(PointwiseMode::relu_gradient)},
                               {kPointwiseMath, choice(DataType::f32)},
                               {kPointwiseNan, choice(NanPropagation::yes)}}}});
}

void Graph::matmul(int a, int b, int c) {
    operations.push_back(
        {.kind = Kind::matmul_op,
         .ports = {{kMatmulA, a}, {kMatmulB, b}, {kMatmulC, c, true}},
         .description = Operation::Description{
             Kind::matmul, kMatmulDescription, {{kMatmulMath, choice(DataType::f32)}}}});
}

void Graph::reduce(ReduceMode mode, int x, int y) {
    operations.push_back(
        {.kind = Kind::reduction_op,
         .ports = {{kReductionX, x}, {kReductionY, y, true}},
         .description = Operation::Description{
             Kind::reduction,
             kReductionDescription,
             {{kReductionMode, choice(mode)}, {kReductionMath, choice(DataType::f32)}}}});
}

void Graph::sums(int x, int of_elements, int of_squares) {
    operations.push_back({.kind = Kind::sums_op,
                          .ports = {{kSumsX, x},
                                    {kSumsOfElements, of_elements, true},
                                    {kSumsOfSquares, of_squares, true}},
                          .settings = {{kSumsMode, choice(SumsMode::elements_and_squares)},
                                       {kSumsMath, choice(DataType::f32)}}});
}

void Graph::reshape(int x, int y) {
    operations.push_back(
        {.kind = Kind::reshape_op, .ports = {{kReshapeX, x}, {kReshapeY, y, true}}});
}

void Graph::pool(ResampleMode mode, int x, int y, int index, const Window& window) {
    Operation op{.kind = Kind::resample_forward,
                 .ports = {{kResampleForwardX, x}, {kResampleForwardY, y, true}},
                 .description = Operation::Description{Kind::resample, kResampleForwardDescription,
                                                       resample_settings(mode, window)}};
    if (index >= 0) op.ports.push_back({kResampleForwardIndex, index, true});
    operations.push_back(std::move(op));
}

void Graph::pool_grad(ResampleMode mode, const PoolGrad& grad, const Window& window) {
    Operation op{.kind = Kind::resample_backward,
                 .ports = {{kResampleBackwardDx, grad.dx, true}, {kResampleBackwardDy, grad.dy}},
                 .description = Operation::Description{Kind::resample, kResampleBackwardDescription,
                                                       resample_settings(mode, window)}};
    if (grad.index >= 0) op.ports.push_back({kResampleBackwardIndex, grad.index});
    if (grad.x >= 0) op.ports.push_back({kResampleBackwardX, grad.x});
    if (grad.y >= 0) op.ports.push_back({kResampleBackwardY, grad.y});
    operations.push_back(std::move(op));
}

void Graph::norm(NormMode mode, const Norm& norm) {
    operations.push_back({.kind = Kind::norm_forward,
                          .ports = {{kNormForwardX, norm.x},
                                    {kNormForwardScale, norm.scale},
                                    {kNormForwardBias, norm.bias},
                                    {kNormForwardEps, norm.eps},
                                    {kNormForwardY, norm.y, true},
                                    {kNormForwardMean, norm.mean, true},
                                    {kNormForwardRstd, norm.rstd, true}},
                          .settings = {{kNormForwardMode, choice(mode)},
                                       {kNormForwardPhase, choice(NormPhase::training)}}});
}

void Graph::norm_grad(NormMode mode, const NormGrad& grad) {
    operations.push_back({.kind = Kind::norm_backward,
                          .ports = {{kNormBackwardX, grad.x},
                                    {kNormBackwardMean, grad.mean},
                                    {kNormBackwardRstd, grad.rstd},
                                    {kNormBackwardScale, grad.scale},
                                    {kNormBackwardDy, grad.dy},
                                    {kNormBackwardDx, grad.dx, true},
                                    {kNormBackwardDscale, grad.dscale, true},
                                    {kNormBackwardDbias, grad.dbias, true}},
                          .settings = {{kNormBackwardMode, choice(mode)}}});
}

std::string text_of(const Graph& graph) {
    std::ostringstream text;
    for (size_t t = 0; t < graph.tensors.size(); ++t) {
        const TensorSpec& tensor = graph.tensors[t];
        text << "%" << t << " #" << static_cast<int>(tensor.type) << print(tensor.dims)
             << print(tensor.strides)
             << (tensor.place == Place::inside   ? " inside"
                 : tensor.place == Place::number ? " number"
                                                 : "")
             << "\n";
    }
    for (const Operation& op : graph.operations) {
        text << "op " << static_cast<int>(op.kind);
        for (const Port& port : op.ports) text << " " << port.name << "=%" << port.tensor;
        text << print(op.settings);
        if (op.description) text << " {" << print(op.description->settings) << " }";
        text << "\n";
    }
    return text.str();
}

std::string fault_of(const Graph& graph) {
    for (const TensorSpec& tensor : graph.tensors) {
        if (tensor.dims.size() != tensor.strides.size() ||
            std::any_of(tensor.dims.begin(), tensor.dims.end(), [](int64_t e) { return e < 1; }))
            return cat("G1: a tensor of ", print(tensor.dims), " with strides ",
                       print(tensor.strides));
        if (tensor.place == Place::number && count_of(tensor.dims) != 1)
            return cat("G1: a number of ", print(tensor.dims));
    }
    std::vector<int> writes(graph.tensors.size(), 0), reads(graph.tensors.size(), 0);
    for (const Operation& op : graph.operations) {
        for (const Port& port : op.ports) {
            const auto t = static_cast<size_t>(port.tensor);
            const Place place = graph.tensors[t].place;
            if (!port.is_written) {
                ++reads[t];
                if (place == Place::inside && writes[t] == 0)
                    return cat("G2: tensor ", t, " is read, and nobody has written it");
            } else if (++writes[t] > 1 || place == Place::input || place == Place::number) {
                return cat("G3: tensor ", t, " is ",
                           writes[t] > 1 ? "written twice" : "an input, and is written");
            }
        }
        std::string fault;
        if (op.kind == Kind::norm_forward)
            fault = norm_fault(graph, op, kNormForwardX, kNormForwardMean, kNormForwardMode,
                               {kNormForwardScale, kNormForwardBias});
        if (op.kind == Kind::norm_backward)
            fault = norm_fault(graph, op, kNormBackwardX, kNormBackwardMean, kNormBackwardMode,
                               {kNormBackwardScale, kNormBackwardDscale, kNormBackwardDbias});
        if (!fault.empty()) return fault;
    }
    for (size_t t = 0; t < graph.tensors.size(); ++t)
        if (graph.tensors[t].place == Place::inside && reads[t] == 0)
            return cat("G2: tensor ", t, " is read by nobody");
    return "";
}

std::vector<Descriptor> descriptors_of(const Library& library, const Graph& graph) {
    std::vector<Descriptor> made, operations;
    for (size_t t = 0; t < graph.tensors.size(); ++t)
        made.push_back(tensor_descriptor(library, graph.tensors[t], static_cast<int64_t>(t) + 1));
    for (const Operation& op : graph.operations) {
        Descriptor operation(library, op.kind);
        for (const Port& port : op.ports)
            operation.set(port.name, made[static_cast<size_t>(port.tensor)]);
        set_all(operation, op.settings);
        if (op.description) {
            Descriptor& description = made.emplace_back(library, op.description->kind);
            set_all(description, op.description->settings);
            operation.set(op.description->as, description.finalize("what an operation does"));
        }
        operations.push_back(std::move(operation.finalize("an operation")));
    }
    Descriptor whole(library, Kind::graph);
    whole.set(kGraphOperations, operations).finalize("a graph");
    std::move(operations.begin(), operations.end(), std::back_inserter(made));
    made.push_back(std::move(whole));
    return made;
}

}  // namespace megjit::cuda::cudnn
