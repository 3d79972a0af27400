// Gradients of scan and cond: the graph's ops are applied again under a tape, inside of a
// recording.
#include <algorithm>

#include "jit/plan/ops/control_flow.h"
#include "jit/plan/ops/control_flow_ops.h"
#include "runtime/ops/builders.h"

namespace megjit::jit {
namespace {

namespace build = runtime::build;
using runtime::GradCall;
using runtime::Grads;
using runtime::Tensors;

bool is_real(const Type& type) { return runtime::is_floating(type.dtype); }

TensorRef or_zeros(const TensorRef& gradient, const TensorRef& like) {
    return gradient ? gradient : build::zeros_like(like);
}

// A tape tells operands apart by tensors.
Tensors distinct(std::span<const TensorRef> tensors) {
    Tensors result;
    for (const TensorRef& tensor : tensors) {
        const bool is_known = std::ranges::find(result, tensor) != result.end();
        result.push_back(is_known ? runtime::apply(ops::identity(), {}, {&tensor, 1})[0] : tensor);
    }
    return result;
}

// Further results are the carries that each trip got.
Tensors apply_keeping(Attrs attrs, std::span<const TensorRef> inputs) {
    Graph body = *subgraph(std::get<std::string>(attrs[kBody]));
    const auto carries = static_cast<size_t>(std::get<int64_t>(attrs[kCarries]));
    std::vector<ValueId> kept(inputs.size());
    for (const Node& node : body.nodes())
        if (node.kind == NodeKind::input) kept[static_cast<size_t>(node.slot)] = node.outputs[0];
    kept.resize(carries);
    body.outputs.insert(body.outputs.end(), kept.begin(), kept.end());
    attrs[kBody] = print(body);
    attrs[kKeeps] = int64_t{1};
    return runtime::apply(ops::scan(), attrs, inputs);
}

// Runs the graph's ops once more, through dispatch; inputs by slot.
Tensors apply_graph(const Graph& graph, std::span<const TensorRef> inputs) {
    Tensors values(graph.value_count());
    for (const Node& node : graph.nodes()) {
        if (node.kind == NodeKind::input) {
            values[at(node.outputs[0])] = inputs[static_cast<size_t>(node.slot)];
            continue;
        }
        if (node.kind == NodeKind::constant) {
            TensorRef& number = values[at(node.outputs[0])];
            number = runtime::make_tensor(node.constant->type(), node.constant->storage());
            number->is_constant = true;
            continue;
        }
        Tensors operands;
        for (ValueId input : node.inputs) operands.push_back(values[at(input)]);
        const bool may_be_kept = node.op == &ops::scan() && !std::get<int64_t>(node.attrs[kKeeps]);
        const Tensors results = may_be_kept
                                    ? apply_scan(node.attrs, operands)
                                    : Tensors(runtime::apply(*node.op, node.attrs, operands));
        for (size_t i = 0; i < results.size(); ++i) values[at(node.outputs[i])] = results[i];
    }
    Tensors outputs;
    for (ValueId output : graph.outputs) outputs.push_back(values[at(output)]);
    return outputs;
}

// Gradients of `wanted`, which are among the inputs, from those of the outputs (null: none).
Tensors gradients(const Graph& graph, std::span<const TensorRef> inputs, const Tensors& out_grads,
                  std::span<const TensorRef> wanted) {
    runtime::Tape tape;
    for (const TensorRef& input : wanted) tape.watch(input);
    auto& tapes = runtime::context().tapes;
    tapes.emplace_back(&tape);
    const Tensors outputs = apply_graph(graph, inputs);
    tapes.pop_back();
    Tensors ys, dys;
    for (size_t i = 0; i < outputs.size(); ++i)
        if (out_grads[i]) ys.push_back(outputs[i]), dys.push_back(out_grads[i]);
    return tape.backward(ys, dys, wanted);
}

// The gradient is a scan from the other end. Its carries are the gradients of the carry, and sums
// of those of captured tensors; each trip computes the body anew, from the carry that it got then.
class ScanGradient {
public:
    explicit ScanGradient(const GradCall& g) : g_(g), scan_(g.call) {
        for (size_t i = 0; i < scan_.inputs.size(); ++i) {
            if (!is_real(scan_.inputs[i])) continue;
            if (i < scan_.carries) carries_.push_back(i);
            else if (g.needs[i]) (i < scan_.captured() ? slices_ : captured_).push_back(i);
        }
    }

    Grads run() {
        whole_ = distinct(g_.inputs.subspan(scan_.captured()));
        Tensors sums, slices = kept_carries();
        for (size_t i : carries_) sums.push_back(or_zeros(g_.out_grads[i], g_.outputs[i]));
        for (size_t i : captured_) sums.push_back(build::zeros_like(g_.inputs[i]));
        append(slices, g_.inputs.subspan(scan_.carries, scan_.slices));
        for (size_t i = scan_.carries; i < scan_.outputs.size(); ++i)
            if (g_.out_grads[i]) slices.push_back(g_.out_grads[i]);
        BodyRecorder trip("the gradient of scan");
        record(trip);
        const Tensors found = scan(trip, sums, slices, scan_.trips, !scan_.is_reverse);
        Grads grads(g_.inputs.size());
        auto next = found.begin();
        for (const auto* inputs : {&carries_, &captured_, &slices_})
            for (size_t i : *inputs) grads[i] = *next++;
        return grads;
    }

private:
    Tensors kept_carries() const {
        const auto last = [&](std::span<const TensorRef> all) {
            const auto kept = all.last(scan_.carries);
            return Tensors(kept.begin(), kept.end());
        };
        return scan_.keeps ? last(g_.outputs) : last(apply_keeping(g_.call.attrs, g_.inputs));
    }

    void record(BodyRecorder& trip) {
        Tensors sums, operands, wanted, results, out_grads(scan_.outputs.size());
        const auto input = [&](const Type& type) {
            return trip.add_input(type, g_.outputs[0]->device());
        };
        for (const auto* inputs : {&carries_, &captured_})
            for (size_t i : *inputs) sums.push_back(input(scan_.inputs[i]));
        for (size_t i = 0; i < scan_.captured(); ++i) operands.push_back(input(scan_.inputs[i]));
        append(operands, whole_);
        for (size_t i = 0; i < carries_.size(); ++i) out_grads[carries_[i]] = sums[i];
        for (size_t i = scan_.carries; i < scan_.outputs.size(); ++i)
            if (g_.out_grads[i]) out_grads[i] = input(scan_.outputs[i]);
        for (const auto* inputs : {&carries_, &captured_, &slices_})
            for (size_t i : *inputs) wanted.push_back(operands[i]);
        const Tensors grads = gradients(*scan_.body, operands, out_grads, wanted);
        for (size_t i = 0; i < wanted.size(); ++i) {
            const bool is_sum = i >= carries_.size() && i < sums.size();
            if (!is_sum) results.push_back(or_zeros(grads[i], wanted[i]));
            else results.push_back(grads[i] ? build::add(sums[i], grads[i]) : sums[i]);
        }
        trip.finish(results);
    }

    const GradCall& g_;
    const ScanCall scan_;
    std::vector<size_t> carries_, captured_, slices_;  // inputs that get a gradient
    Tensors whole_;  // what was captured
};

}  // namespace

Tensors apply_scan(const Attrs& attrs, std::span<const TensorRef> inputs) {
    const auto is_tracked = [&](const runtime::TapeRef& tape) {
        return std::ranges::any_of(inputs, [&](const TensorRef& input) {
            return is_real(input->type()) && tape->tracks(*input);
        });
    };
    if (!std::ranges::any_of(runtime::context().tapes, is_tracked))
        return runtime::apply(ops::scan(), attrs, inputs);
    Tensors results = apply_keeping(attrs, inputs);
    results.resize(results.size() - static_cast<size_t>(std::get<int64_t>(attrs[kCarries])));
    return results;
}

Grads scan_gradients(const GradCall& g) { return ScanGradient(g).run(); }

Grads cond_gradients(const GradCall& g) {
    const Tensors operands = distinct(g.inputs.subspan(1));
    const Tensors out_grads(g.out_grads.begin(), g.out_grads.end());
    std::vector<size_t> inputs;
    Tensors wanted;
    for (size_t i = 0; i < operands.size(); ++i)
        if (g.needs[i + 1]) inputs.push_back(i + 1), wanted.push_back(operands[i]);
    const auto record = [&](BodyRecorder& branch, std::string_view which) {
        Tensors grads = gradients(*subgraph(g.call.text(which)), operands, out_grads, wanted);
        for (size_t i = 0; i < grads.size(); ++i) grads[i] = or_zeros(grads[i], wanted[i]);
        branch.finish(grads);
    };
    BodyRecorder if_true("the gradient of cond");
    record(if_true, "if_true");
    BodyRecorder if_false("the gradient of cond");
    record(if_false, "if_false");
    const Tensors found = cond(g.inputs[0], if_true, if_false);
    Grads grads(g.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) grads[inputs[i]] = found[i];
    return grads;
}

}  // namespace megjit::jit
