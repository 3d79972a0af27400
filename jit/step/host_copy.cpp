#include "jit/step/host_copy.h"

#include <algorithm>

namespace megjit::jit {
namespace {

OpDef copy_op(std::string name, std::string doc) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x"},
            .infer = [](const runtime::OpCall& call) { return std::vector<Type>{call.inputs[0]}; },
            .cost = [](const runtime::OpCall&, std::span<const Type> outputs) {
        return runtime::Cost{.bytes = static_cast<double>(outputs[0].bytes())};
    }};
}

class HostCopy final : public runtime::Executable {
public:
    HostCopy(bool is_to_host, size_t bytes) : is_to_host_(is_to_host), bytes_(bytes) {}
    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void*) const override {
        if (is_to_host_) stream.download(outputs[0], inputs[0], bytes_);
        else stream.upload(outputs[0], inputs[0], bytes_, /*stays=*/true);
    }

private:
    bool is_to_host_;
    size_t bytes_;
};

constexpr double kSecondsToStart = 1.5e-6;  // of a GPU's kernel, and of a transfer

double seconds_of(const Graph& graph, const Node& node) {
    const runtime::Speeds speeds = graph.device().speeds();
    runtime::Cost cost;
    if (node.kind == NodeKind::fused) {
        for (const codegen::LaunchShape& launch : launches_of(node))
            cost.flops += static_cast<double>(launch.numel()) * node.kernel->kernel.program.size();
        for (ValueId value : node.inputs)
            cost.bytes += static_cast<double>(graph.type(value).bytes());
        for (ValueId value : node.outputs)
            cost.bytes += static_cast<double>(graph.type(value).bytes());
    } else if (node.kind == NodeKind::op && !node.op->is_view && !is_host_copy(node)) {
        const std::vector<Type> inputs = graph.types(node.inputs);
        return kSecondsToStart +
               speeds.seconds({*node.op, node.attrs, inputs}, graph.types(node.outputs));
    } else {
        return 0;
    }
    return kSecondsToStart + speeds.seconds(cost, runtime::DType::f32);
}

}  // namespace

const OpDef& to_host() {
    static const OpDef op = copy_op("to_host", "x outside of the device's memory.");
    return op;
}

const OpDef& from_host() {
    static const OpDef op =
        copy_op("from_host", "x, which to_host has stored, in the device's memory again.");
    return op;
}

std::vector<bool> lies_outside(const Graph& graph) {
    std::vector<bool> outside(graph.value_count());
    if (std::ranges::none_of(graph.nodes(), is_host_copy)) return outside;
    for (const Node& node : graph.nodes())
        if (node.op == &from_host() && graph.producer(node.inputs[0]).kind == NodeKind::input)
            outside[at(node.inputs[0])] = true;
    for (ValueId output : graph.outputs)
        outside[at(output)] = graph.producer(output).op == &to_host();
    return outside;
}

Timetable::Timetable(const Graph& graph) : begins{0}, graph_(graph) {
    for (const Node& node : graph.nodes())
        begins.push_back(begins.back() + seconds_of(graph, node));
}

double Timetable::transferred(double begin, size_t bytes) {
    return link_is_free_ = std::max(link_is_free_, begin) + transfer_seconds(bytes);
}

double Timetable::transfer_seconds(size_t bytes) const {
    return kSecondsToStart + static_cast<double>(bytes) / graph_.device().speeds().link_bytes;
}

std::shared_ptr<const runtime::Executable> host_copy(const OpDef& op, size_t bytes) {
    return std::make_shared<HostCopy>(&op == &to_host(), bytes);
}

}  // namespace megjit::jit
