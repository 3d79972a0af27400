#include "jit/step/body_recorder.h"

#include <algorithm>

#include "runtime/core/random.h"
#include "runtime/host/error.h"
#include "runtime/host/user_line.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {

using runtime::cat;

namespace {

// A number stands in the graph's text; other tensors are inputs.
bool is_number(const runtime::Tensor& tensor) {
    constexpr int64_t kMost = 16;
    return tensor.is_constant && tensor.has_data() && tensor.type().numel() <= kMost &&
           tensor.dtype() != runtime::DType::c64;
}

// The op that holds the graph has its operands copied into this order.
Type type_inside(const runtime::Tensor& outside) {
    Type type = outside.type();
    type.layout = runtime::Layout::row_major;
    return type;
}

}  // namespace

BodyRecorder::BodyRecorder(std::string what)
    : GraphTracer(next_trace_id(runtime::TraceLink::kBody)),
      what_(std::move(what)),
      first_inside_id_(runtime::make_placeholder({}, runtime::host_device())->id()),
      outer_(runtime::context().tracer) {
    const BodyRecorder* around = running();
    is_differentiated_ = around ? around->is_differentiated_ : !runtime::context().tapes.empty();
    outer_tapes_ = {runtime::TapeRef(seen_by_)};
    outer_tapes_.swap(runtime::context().tapes);
    runtime::context().tracer = this;
}

void BodyRecorder::leave() {
    if (!is_running_) return;
    is_running_ = false;
    runtime::context().tracer = outer_;
    runtime::context().tapes = std::move(outer_tapes_);
}

TensorRef BodyRecorder::add_input(const Type& type, runtime::Device& device) {
    inputs_.push_back(graph_.add_input(type, static_cast<int>(graph_.value_count())));
    return placeholder(inputs_.back(), type, device);
}

ValueId BodyRecorder::capture(const TensorRef& tensor) {
    if (is_number(*tensor)) return graph_.add_constant(tensor);
    captured_.push_back(tensor);
    const ValueId input =
        graph_.add_input(type_inside(*tensor), static_cast<int>(graph_.value_count()));
    if (is_made_inside(*tensor)) computed_.emplace(input, tensor);
    return input;
}

void BodyRecorder::note_refusal(const runtime::UserError& error) {
    RefusingTracer::note_refusal(error);
    // The body's results are wrong for those around it, too.
    if (auto* around = dynamic_cast<RefusingTracer*>(outer_)) around->note_refusal(error);
}

runtime::Results BodyRecorder::on_op(const OpDef& op, const Attrs& attrs,
                                     std::span<const TensorRef> inputs, runtime::Device& device) {
    if (op.is_data_dependent())
        refuse({.what = cat(what_, ": the shape of ", op.name, "'s result depends on values"),
                .why = "the body is recorded once, and what runs has static shapes",
                .fix = "select with F.where or a mask, or do it outside",
                .at = runtime::user_line()});
    if (runtime::is_ordered(op))
        refuse({.what = cat(what_, " exchanges data with other processes: ", op.name),
                .fix = "exchange the results behind the loop",
                .at = runtime::user_line()});
    std::vector<ValueId> results = graph_.add_op(op, values_of(inputs), attrs, {});
    if (runtime::context().tapes.empty())  // detach(), pause_tapes
        for (ValueId& result : results)
            result = graph_.make(ops::stop_gradient(), {result}, {}, {});
    return placeholders(graph_, results, device);
}

void BodyRecorder::on_read(runtime::Tensor& tensor) {
    if (tensor.trace.session != id_) {  // its maker is told
        if (outer_) outer_->on_read(tensor);
        return;
    }
    if (const TensorRef known = computed(ValueId{tensor.trace.value}, tensor.device()))
        return tensor.materialize(*known);
    refuse({.what = cat("the value of a ", to_string(tensor.type()), " tensor is read in ", what_),
            .why = "it is recorded before anything is computed",
            .fix = "for an if on it write F.cond or F.where, for a while F.while_loop",
            .at = runtime::user_line()});
}

// Tells whether the body has made the tensor of host data.
bool BodyRecorder::is_made_inside(const runtime::Tensor& tensor) const {
    return tensor.id() >= first_inside_id_ && tensor.has_data() && tensor.storage()->is_owned() &&
           !runtime::state_of(tensor);
}

TensorRef BodyRecorder::computed(ValueId value, runtime::Device& device) {
    const auto [place, is_new] = computed_.try_emplace(value);
    if (!is_new) return place->second;
    const Node& node = graph_.producer(value);
    if (node.kind == NodeKind::constant) return computed_[value] = node.constant;
    if (node.kind != NodeKind::op) return {};
    runtime::Tensors inputs;
    for (const ValueId input : node.inputs) {
        inputs.push_back(computed(input, device));
        if (!inputs.back()) return {};
    }
    const runtime::Results results = runtime::compute(*node.op, node.attrs, inputs, &device);
    for (size_t i = 0; i < results.size(); ++i) computed_[node.outputs[i]] = results[i];
    return computed_[value];
}

runtime::Message BodyRecorder::leak_of(const runtime::Tensor& tensor, std::string where) {
    return {.what = cat("a ", to_string(tensor.type()),
                        " tensor that the body of a loop, or a branch of cond, computes is used "
                        "outside of it"),
            .why = "it is recorded once, and this is none of its results",
            .fix = "return it: from a loop as a carry or to be stacked, from a branch as a result",
            .at = std::move(where)};
}

void BodyRecorder::refuse_update_of(const runtime::Tensor& old) {
    if (old.id() < first_inside_id_)
        refuse({.what = cat(what_, " updates a ", to_string(old.type()),
                            " tensor from outside in place"),
                .why = "it is recorded once: there is no value yet that the tensor could hold",
                .fix = "make it a part of the carry; let normalization and observers be in eval()",
                .at = runtime::user_line()},
               runtime::ErrorKind::runtime);
}

void BodyRecorder::refuse_custom_gradient() {
    if (is_differentiated_)
        refuse({.what = cat("autodiff.Function: its backward would be lost in ", what_),
                .why = "gradients of what is recorded once follow from its operations",
                .fix = "write it in operations, or call it outside",
                .at = runtime::user_line()},
               runtime::ErrorKind::runtime);
}

bool BodyRecorder::gradient_is_asked(const runtime::Tensor& outside) const {
    const auto* around = dynamic_cast<const BodyRecorder*>(outer_);
    return (around && around->gradient_is_asked(outside)) ||
           std::ranges::any_of(outer_tapes_, [&](const runtime::TapeRef& tape) {
        return !tape->is_closed && tape->tracks(outside);
    });
}

void BodyRecorder::refuse_rows_of(const runtime::Tensor& table) {
    if (gradient_is_asked(table))
        refuse(
            {.what = cat("a lookup with sparse=True is in ", what_),
             .why = "the gradient of a table that a loop or a condition reads is no list of rows",
             .fix = "look the rows up outside, or leave sparse False",
             .at = runtime::user_line()},
            runtime::ErrorKind::runtime);
}

void BodyRecorder::finish(std::span<const TensorRef> outputs) {
    refusal_.raise();
    graph_.outputs = values_of(outputs);
    leave();
}

Graph BodyRecorder::graph(std::span<const TensorRef> captured) const {
    Rewriter rewrite(graph_);
    int slot = 0;
    for (ValueId input : inputs_)
        rewrite.replace(input, rewrite.to.add_input(graph_.type(input), slot++));
    for (const TensorRef& tensor : captured) {
        const ValueId fresh = rewrite.to.add_input(type_inside(*tensor), slot++);
        if (const auto value = find(tensor->id())) rewrite.replace(*value, fresh);
    }
    for (const Node& node : graph_.nodes())
        if (node.kind != NodeKind::input) rewrite.copy(node);
    return drop_dead(rewrite.finish());
}

}  // namespace megjit::jit
