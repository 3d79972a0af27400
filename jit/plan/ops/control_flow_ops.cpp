// jit/plan/ops/ -- ops that hold graphs (jit/step/subgraph.h), which runtime/ does not know.
//
// jit/plan/ops/control_flow_ops.cpp -- scan, while_loop and cond: types and costs.
// Rules: L1 operands are what the graphs take
//        L2 a carry keeps its type
//        L3 both branches give the same types
//        L4 a condition is one bool
#include "jit/plan/ops/control_flow_ops.h"

#include <algorithm>
#include <mutex>

#include "jit/plan/ops/control_flow.h"
#include "jit/plan/prepared_graph.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::Attr;
using runtime::AttrKind;
using runtime::cat;
using runtime::Cost;
using runtime::OpCall;

// Packed weights lie in another number of bytes; other layouts are converted where they differ.
bool same_type(const Type& a, const Type& b) {
    const bool is_packed = runtime::is_packed(a.layout) || runtime::is_packed(b.layout);
    return a.dtype == b.dtype && a.shape == b.shape && (!is_packed || a.layout == b.layout);
}

[[noreturn]] void refuse(const OpCall& call, const std::string& what) {
    runtime::user_error({.what = cat(call.op.name, ": ", what)}, runtime::ErrorKind::operands);
}

void check_types(const OpCall& call, std::span<const Type> given, std::span<const Type> wanted,
                 std::string_view what) {
    if (given.size() != wanted.size())
        refuse(call, cat(what, ": there are ", given.size(), ", not ", wanted.size()));
    for (size_t i = 0; i < given.size(); ++i)
        if (!same_type(given[i], wanted[i]))
            refuse(call, cat(what, ": number ", i, " is ", to_string(given[i]), ", not ",
                             to_string(wanted[i])));
}

std::vector<Type> infer_scan(const OpCall& call) {
    const ScanCall scan(call);
    std::vector<Type> wanted = scan.inputs, results = scan.outputs;
    for (size_t i = scan.carries; i < scan.captured(); ++i)
        wanted[i] = stacked(wanted[i], scan.trips);
    for (size_t i = scan.carries; i < results.size(); ++i)
        results[i] = stacked(results[i], scan.trips);
    check_types(call, call.inputs, wanted, "operands");
    check_types(call, std::span(results).first(scan.carries), std::span(wanted).first(scan.carries),
                "carries");
    return results;
}

std::vector<Type> infer_while(const OpCall& call) {
    const auto condition = subgraph(call.text("condition")), body = subgraph(call.text("body"));
    const std::vector<Type> results = body->types(body->outputs);
    check_types(call, call.inputs, input_types(*body), "operands");
    check_types(call, call.inputs, input_types(*condition), "operands of the condition");
    const Type flag{.dtype = runtime::DType::b8};
    check_types(call, condition->types(condition->outputs), {&flag, 1}, "conditions");
    if (results.size() > call.inputs.size()) refuse(call, "more results than operands");
    check_types(call, results, call.inputs.first(results.size()), "carries");
    return results;
}

std::vector<Type> infer_cond(const OpCall& call) {
    const auto if_true = subgraph(call.text("if_true")), if_false = subgraph(call.text("if_false"));
    const Type flag{.dtype = runtime::DType::b8};
    check_types(call, call.inputs.first(1), {&flag, 1}, "conditions");
    const auto operands = call.inputs.subspan(1);
    check_types(call, operands, input_types(*if_true), "operands");
    check_types(call, operands, input_types(*if_false), "operands");
    const std::vector<Type> results = if_true->types(if_true->outputs);
    check_types(call, if_false->types(if_false->outputs), results, "results");
    return results;
}

Cost cost_of_graph(const std::string& text) {
    const auto graph = subgraph(text);
    Cost sum;
    for (const Node& node : graph->nodes()) {
        if (node.kind == NodeKind::fused)
            sum.bytes += static_cast<double>(bytes_moved(*graph, node));
        if (node.kind != NodeKind::op) continue;
        const std::vector<Type> inputs = graph->types(node.inputs),
                                outputs = graph->types(node.outputs);
        const Cost cost = runtime::cost_of({*node.op, node.attrs, inputs}, outputs);
        sum.flops += cost.flops;
        sum.bytes += cost.bytes;
    }
    return sum;
}

Cost cost_scan(const OpCall& call, std::span<const Type>) {
    const Cost trip = cost_of_graph(call.text("body"));
    const auto trips = static_cast<double>(call.integer("trips"));
    return {trips * trip.flops, trips * trip.bytes};
}

// Counts one trip: nobody knows how many there are.
Cost cost_while(const OpCall& call, std::span<const Type>) {
    const Cost test = cost_of_graph(call.text("condition")),
               trip = cost_of_graph(call.text("body"));
    return {test.flops + trip.flops, test.bytes + trip.bytes};
}

Cost cost_cond(const OpCall& call, std::span<const Type>) {
    const Cost a = cost_of_graph(call.text("if_true")), b = cost_of_graph(call.text("if_false"));
    return {std::max(a.flops, b.flops), std::max(a.bytes, b.bytes)};
}

runtime::Grads refuse_gradients(const runtime::GradCall&) {
    runtime::user_error(
        {.what = "while_loop: it has no gradient in a trace",
         .why = "backward would need the values of each trip, and nobody knows how many there are",
         .fix = "say how many there may be, while_loop(..., max_trips=n), or use scan"},
        runtime::ErrorKind::runtime);
}

}  // namespace

ScanCall::ScanCall(const OpCall& call)
    : body(subgraph(call.text("body"))),
      inputs(input_types(*body)),
      outputs(body->types(body->outputs)),
      trips(call.integer("trips")),
      is_reverse(call.flag("reverse")),
      keeps(call.flag("keeps")) {
    const int64_t first = call.integer("carries"), then = call.integer("slices");
    const auto most = static_cast<int64_t>(inputs.size());
    const int64_t kept = keeps ? first : 0;
    if (first < 0 || then < 0 || trips < 0 || first > most || then > most - first ||
        first + kept > static_cast<int64_t>(outputs.size()))
        refuse(call, cat("a body of ", most, " inputs and ", outputs.size(), " outputs with ",
                         first, " carries, ", then, " slices and ", trips, " trips"));
    carries = static_cast<size_t>(first);
    slices = static_cast<size_t>(then);
}

Type stacked(const Type& element, int64_t trips) {
    std::vector<int64_t> extents{trips};
    extents.insert(extents.end(), element.shape.begin(), element.shape.end());
    return {element.dtype, runtime::Shape(extents)};
}

void register_control_flow_ops() {
    static std::once_flag once;
    std::call_once(once, [] {
        runtime::register_op(
            {.name = "scan",
             .doc =
                 "(carry, x[i], more) -> (carry, y[i]) for each of `trips` elements; returns the last carry and all y.",
             .inputs = {"operands"},
             .variadic = true,
             .attrs = {{"body", AttrKind::graph},
                       {"carries", AttrKind::integer},
                       {"slices", AttrKind::integer},
                       {"trips", AttrKind::integer},
                       {"reverse", AttrKind::integer, Attr{int64_t{0}}},
                       {"keeps", AttrKind::integer, Attr{int64_t{0}}}},
             .takes_64_bits = true,
             .infer = infer_scan,
             .grad = scan_gradients,
             .cost = cost_scan});
        runtime::register_op({.name = "while_loop",
                              .doc = "(carry, more) -> carry while the condition of both is true.",
                              .inputs = {"operands"},
                              .variadic = true,
                              .attrs = {{"condition", AttrKind::graph}, {"body", AttrKind::graph}},
                              .takes_64_bits = true,
                              .infer = infer_while,
                              .grad = refuse_gradients,
                              .keeps = runtime::Keeps::nothing,
                              .cost = cost_while});
        runtime::register_op(
            {.name = "cond",
             .doc = "One of two graphs of the same operands, behind a bool that selects it.",
             .inputs = {"operands"},
             .variadic = true,
             .attrs = {{"if_true", AttrKind::graph}, {"if_false", AttrKind::graph}},
             .takes_64_bits = true,
             .infer = infer_cond,
             .grad = cond_gradients,
             .cost = cost_cond});
    });
}

}  // namespace megjit::jit
