#include "tests/card/libraries/cudnn_descriptor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace megjit::cuda::cudnn {
namespace {

using card_libraries::cat;
using card_libraries::Misuse;

[[noreturn]] void refuse(const Descriptor& d, const std::string& why) {
    throw Misuse(kBadParameter, cat("descriptor of kind ", static_cast<int>(d.kind), ": ", why));
}

size_t bytes_of(Tag tag) {
    switch (tag) {
        case Tag::boolean:
        case Tag::text: return 1;
        case Tag::int64:
        case Tag::real64:
        case Tag::handle:
        case Tag::pointer:
        case Tag::descriptor: return 8;
        default: return 4;  // enumerations and float
    }
}

struct Rule {
    int name;
    Tag tag;
    int64_t most = 1;
    bool is_needed = true;
};
constexpr int64_t kMostAxes = 8, kMany = 64, kLong = int64_t{1} << 30;

const std::vector<Rule>& rules_of(Kind kind) {
    const auto conv = [](int first) {
        return std::vector<Rule>{{first, Tag::real32},         {first + 1, Tag::real32},
                                 {first + 2, Tag::descriptor}, {first + 3, Tag::descriptor},
                                 {first + 4, Tag::descriptor}, {first + 5, Tag::descriptor}};
    };
    const auto ports = [](std::initializer_list<int> names) {
        std::vector<Rule> rules;
        for (int name : names) rules.push_back({name, Tag::descriptor});
        return rules;
    };
    const auto and_more = [](std::vector<Rule> rules, std::initializer_list<Rule> more) {
        rules.insert(rules.end(), more);
        return rules;
    };
    static const std::map<Kind, std::vector<Rule>> table = {
        {Kind::tensor,
         {{kTensorType, Tag::data_type},
          {kTensorDims, Tag::int64, kMostAxes},
          {kTensorStrides, Tag::int64, kMostAxes},
          {kTensorId, Tag::int64},
          {kTensorAlignment, Tag::int64},
          {kTensorIsVirtual, Tag::boolean, 1, false},
          {kTensorIsByValue, Tag::boolean, 1, false}}},
        {Kind::pointwise,
         {{kPointwiseMode, Tag::pointwise_mode},
          {kPointwiseMath, Tag::data_type},
          {kPointwiseNan, Tag::nan_propagation, 1, false},
          {kPointwiseAxis, Tag::int64, 1, false}}},
        {Kind::convolution,
         {{kConvolutionMath, Tag::data_type},
          {kConvolutionMode, Tag::convolution_mode},
          {kConvolutionDims, Tag::int64},
          {kConvolutionDilations, Tag::int64, kMostAxes},
          {kConvolutionStrides, Tag::int64, kMostAxes},
          {kConvolutionPaddingBefore, Tag::int64, kMostAxes},
          {kConvolutionPaddingAfter, Tag::int64, kMostAxes}}},
        {Kind::matmul, {{kMatmulMath, Tag::data_type}}},
        {Kind::reduction, {{kReductionMode, Tag::reduce_mode}, {kReductionMath, Tag::data_type}}},
        {Kind::resample,
         {{kResampleMode, Tag::resample_mode},
          {kResampleMath, Tag::data_type},
          {kResampleDims, Tag::int64},
          {kResampleNan, Tag::nan_propagation},
          {kResamplePadding, Tag::padding_mode},
          {kResampleStrides, Tag::int64, kMostAxes},
          {kResampleWindow, Tag::int64, kMostAxes},
          {kResamplePaddingBefore, Tag::int64, kMostAxes},
          {kResamplePaddingAfter, Tag::int64, kMostAxes}}},
        {Kind::conv_forward, conv(kConvForward)},
        {Kind::conv_data, conv(kConvData)},
        {Kind::conv_filter, conv(kConvFilter)},
        {Kind::pointwise_op, and_more(ports({kPointwiseDescription, kPointwiseX}),
                                      {{kPointwiseY, Tag::descriptor, 1, false},
                                       {kPointwiseB, Tag::descriptor, 1, false},
                                       {kPointwiseDx, Tag::descriptor, 1, false},
                                       {kPointwiseDy, Tag::descriptor, 1, false},
                                       {kPointwiseT, Tag::descriptor, 1, false}})},
        {Kind::matmul_op, ports({kMatmulDescription, kMatmulA, kMatmulB, kMatmulC})},
        {Kind::reduction_op, ports({kReductionDescription, kReductionX, kReductionY})},
        {Kind::sums_op, and_more(ports({kSumsX, kSumsOfElements, kSumsOfSquares}),
                                 {{kSumsMode, Tag::sums_mode}, {kSumsMath, Tag::data_type}})},
        {Kind::reshape_op, ports({kReshapeX, kReshapeY})},
        {Kind::resample_forward,
         and_more(ports({kResampleForwardDescription, kResampleForwardX, kResampleForwardY}),
                  {{kResampleForwardIndex, Tag::descriptor, 1, false}})},
        {Kind::resample_backward,
         and_more(ports({kResampleBackwardDescription, kResampleBackwardDx, kResampleBackwardDy}),
                  {{kResampleBackwardIndex, Tag::descriptor, 1, false},
                   {kResampleBackwardX, Tag::descriptor, 1, false},
                   {kResampleBackwardY, Tag::descriptor, 1, false}})},
        {Kind::norm_forward,
         and_more(ports({kNormForwardX, kNormForwardMean, kNormForwardRstd, kNormForwardScale,
                         kNormForwardBias, kNormForwardEps, kNormForwardY}),
                  {{kNormForwardMode, Tag::norm_mode}, {kNormForwardPhase, Tag::norm_phase}})},
        {Kind::norm_backward,
         and_more(
             ports({kNormBackwardX, kNormBackwardMean, kNormBackwardRstd, kNormBackwardDy,
                    kNormBackwardScale, kNormBackwardDscale, kNormBackwardDbias, kNormBackwardDx}),
             {{kNormBackwardMode, Tag::norm_mode}})},
        {Kind::graph, {{kGraphOperations, Tag::descriptor, kMany}}},
        {Kind::device, {{kDeviceText, Tag::text, kLong}}},
        {Kind::heuristic,
         {{kHeuristicGraph, Tag::descriptor},
          {kHeuristicMode, Tag::heuristic_mode},
          {kHeuristicDevice, Tag::descriptor}}},
        {Kind::engine, {}},
        {Kind::engine_config, {{kConfigEngine, Tag::descriptor}}},
        {Kind::plan,
         {{kPlanConfig, Tag::descriptor, 1, false},
          {kPlanDevice, Tag::descriptor, 1, false},
          {kPlanText, Tag::text, kLong, false}}},
        {Kind::variant_pack,
         {{kPackIds, Tag::int64, kMany},
          {kPackPointers, Tag::pointer, kMany},
          {kPackWorkspace, Tag::pointer}}},
    };
    const auto found = table.find(kind);
    if (found == table.end())
        throw Misuse(kNotSupported, cat("nobody asks for kind ", static_cast<int>(kind)));
    return found->second;
}

void check_tensor(const Descriptor& d) {
    const Dims dims = d.numbers(kTensorDims), strides = d.numbers(kTensorStrides);
    if (dims.size() != strides.size()) refuse(d, "each axis has an extent and a stride");
    if (std::any_of(dims.begin(), dims.end(), [](int64_t e) { return e < 1; }))
        refuse(d, "an extent is below 1");
    const int64_t alignment = d.number(kTensorAlignment);
    if (alignment < 1 || (alignment & (alignment - 1))) refuse(d, "an alignment is a power of two");
}

void check_axes(const Descriptor& d, int count, std::initializer_list<int> names) {
    for (int name : names)
        if (static_cast<int64_t>(d.numbers(name).size()) != d.number(count))
            refuse(d, cat("attribute ", name, " has not a number for each axis"));
}

card_libraries::Element element(int64_t type) {
    using card_libraries::Element;
    switch (static_cast<DataType>(type)) {
        case DataType::f32: return Element::f32;
        case DataType::f16: return Element::f16;
        case DataType::bf16: return Element::bf16;
        case DataType::i32: return Element::i32;
        case DataType::i8: return Element::i8;
        case DataType::b1: return Element::b1;
    }
    throw Misuse(kNotSupported, cat("type ", type));
}

Tensor tensor_of(const Descriptor& d) {
    const auto flag = [&](int name) { return d.has(name) && d.number(name) != 0; };
    return {.id = d.number(kTensorId),
            .alignment = d.number(kTensorAlignment),
            .type = element(d.number(kTensorType)),
            .dims = d.numbers(kTensorDims),
            .strides = d.numbers(kTensorStrides),
            .is_virtual = flag(kTensorIsVirtual),
            .is_by_value = flag(kTensorIsByValue)};
}

Step step_of(const Descriptor& operation, Graph& graph) {
    Step step{.kind = operation.kind};
    for (const auto& [name, value] : operation.values) {
        if (value.tag != Tag::descriptor) {
            step.settings[name] = operation.numbers(name);
            continue;
        }
        const Descriptor& child = operation.one(name);
        if (child.kind == Kind::tensor) {
            Tensor tensor = tensor_of(child);
            step.ports[name] = tensor.id;
            graph.tensors[tensor.id] = std::move(tensor);
        } else {
            for (const auto& [setting, ignored] : child.values)
                step.settings[setting] = child.numbers(setting);
        }
    }
    return step;
}

// Inside tensors are written before they are read, and nothing twice.
void check_order(const Descriptor& d, const Graph& graph) {
    std::map<int64_t, int> writes;
    for (const Step& step : graph.steps) {
        for (const auto& [port, id] : step.ports)
            if (!is_written(step.kind, port) && graph.tensors.at(id).is_virtual && !writes[id])
                refuse(d, cat("tensor ", id, " is virtual, and read before it is written"));
        for (const auto& [port, id] : step.ports)
            if (is_written(step.kind, port) && ++writes[id] > 1)
                refuse(d, cat("tensor ", id, " is written twice"));
    }
}

}  // namespace

card_libraries::Live& live() {
    static auto& all = *new card_libraries::Live(kBadParameter);
    return all;
}

Descriptor& checked(RawDescriptor raw) {
    live().expect(raw, "descriptor");
    return *static_cast<Descriptor*>(raw);
}

Descriptor::Descriptor(Kind kind)
    : kind(kind), serial([] {
          static std::atomic<uint64_t> count{0};
          return ++count;
      }()) {
    rules_of(kind);
}

void Descriptor::set(int name, Tag tag, int64_t count, const void* data) {
    if (is_final) refuse(*this, "it is finalized, and changed no more");
    const std::vector<Rule>& rules = rules_of(kind);
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const Rule& r) { return r.name == name; });
    if (rule == rules.end()) refuse(*this, cat("it has no attribute ", name));
    if (rule->tag != tag)
        refuse(*this, cat("attribute ", name, " has type ", static_cast<int>(rule->tag), ", not ",
                          static_cast<int>(tag)));
    if (count < 1 || count > rule->most || !data)
        refuse(*this, cat("attribute ", name, " has up to ", rule->most, " values, not ", count));
    const auto* bytes = static_cast<const std::byte*>(data);
    Value value{tag, count, {bytes, bytes + static_cast<size_t>(count) * bytes_of(tag)}};
    values[name] = std::move(value);
    if (tag == Tag::descriptor)
        for (const Descriptor* child : all(name))
            if (!child->is_final) refuse(*this, cat("attribute ", name, " is not finalized"));
}

void Descriptor::finalize() {
    if (is_final) refuse(*this, "it is finalized twice");
    for (const Rule& rule : rules_of(kind))
        if (rule.is_needed && !has(rule.name))
            refuse(*this, cat("attribute ", rule.name, " is missing"));
    if (kind == Kind::tensor) check_tensor(*this);
    if (kind == Kind::convolution)
        check_axes(*this, kConvolutionDims,
                   {kConvolutionDilations, kConvolutionStrides, kConvolutionPaddingBefore,
                    kConvolutionPaddingAfter});
    if (kind == Kind::resample)
        check_axes(
            *this, kResampleDims,
            {kResampleStrides, kResampleWindow, kResamplePaddingBefore, kResamplePaddingAfter});
    if (kind == Kind::graph) check_order(*this, graph_of(*this));
    if (kind == Kind::variant_pack && numbers(kPackIds).size() != numbers(kPackPointers).size())
        refuse(*this, "each id has a pointer");
    is_final = true;
}

Dims Descriptor::numbers(int name) const {
    const auto found = values.find(name);
    if (found == values.end()) refuse(*this, cat("attribute ", name, " is missing"));
    const Value& value = found->second;
    Dims numbers(static_cast<size_t>(value.count), 0);
    const size_t bytes = bytes_of(value.tag);
    for (size_t i = 0; i < numbers.size(); ++i)
        std::memcpy(&numbers[i], value.bytes.data() + i * bytes, bytes);
    return numbers;
}

std::string Descriptor::text(int name) const {
    const Value& value = values.at(name);
    return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

std::vector<const Descriptor*> Descriptor::all(int name) const {
    std::vector<const Descriptor*> children;
    for (const int64_t number : numbers(name))
        children.push_back(&checked(reinterpret_cast<RawDescriptor>(number)));
    return children;
}

Graph graph_of(const Descriptor& d) {
    Graph graph;
    for (const Descriptor* operation : d.all(kGraphOperations)) {
        graph.steps.push_back(step_of(*operation, graph));
        check(graph, graph.steps.back());
    }
    return graph;
}

}  // namespace megjit::cuda::cudnn
