#include "tests/fuzz/judge.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "jit/plan/pipeline.h"
#include "jit/run/program.h"
#include "runtime/core/host_view.h"
#include "runtime/host/error.h"
#include "tests/codegen/random_kernels.h"
#include "tests/fuzz/rounding.h"

namespace megjit::fuzz {
namespace {

using runtime::cat;
using runtime::Tensor;

// Copies that nobody else holds.
std::vector<TensorRef> copies_on(runtime::Device& device, const std::vector<TensorRef>& tensors) {
    std::vector<TensorRef> copies;
    for (const TensorRef& tensor : tensors)
        copies.push_back(
            runtime::tensor_from_host(device, tensor->type(), runtime::HostView(tensor).data()));
    return copies;
}

const char* element(const Tensor& tensor, int64_t i) {
    return tensor.as<char>() + static_cast<size_t>(i) * size_of(tensor.dtype());
}

std::string difference(const Tensor& got, const Tensor& want, double tolerance) {
    if (!(got.type() == want.type()))
        return cat(to_string(got.type()), " instead of ", to_string(want.type()));
    const double allowed = tolerance > kSignOfZero ? 2 * tolerance + 1e-6 * largest(want) : 0;
    for (int64_t i = 0; i < want.type().numel(); ++i) {
        if (codegen::same_value(want.dtype(), element(got, i), element(want, i))) continue;
        const double a = item_as_double(got, i), b = item_as_double(want, i);
        if (tolerance == 0 || !(std::fabs(a - b) <= allowed))
            return cat("element ", i, " is ", a, " instead of ", b,
                       tolerance > 0 ? cat(", off by more than ", allowed) : " (bits)");
    }
    return "";
}

}  // namespace

Graph optimized(const Graph& graph, Temper temper,
                std::initializer_list<std::string_view> skipped) {
    const jit::PipelineOptions options{.opt_level = 3, .exact = temper == Temper::wild};
    Graph result = graph;
    for (const jit::Pass& pass : jit::pipeline()) {
        if ((options.exact && !pass.keeps_bits) ||
            std::find(skipped.begin(), skipped.end(), pass.name) != skipped.end())
            continue;
        result = pass.run(result, options);
        if (const std::string fault = jit::fault_of(result); !fault.empty())
            throw runtime::InternalError(cat("pass ", pass.name, " broke the graph: ", fault));
    }
    return result;
}

namespace {

Graph on_device(Graph graph, runtime::Device& device) {
    graph.set_device(device);
    return graph;
}

std::vector<TensorRef> run_program(const Graph& graph, const Subject& subject,
                                   runtime::Device& device) {
    constexpr int kRuns = 3;  // the third of a GPU is a graph that runs again
    const std::vector<jit::Input> inputs(subject.inputs.size(), {.is_released = true});
    jit::Program program(on_device(graph, device), {subject.graph, inputs}, {.check = true});
    std::vector<TensorRef> first;
    for (int run = 0; run < kRuns; ++run) {
        std::vector<TensorRef> inputs = copies_on(device, subject.inputs);
        const std::vector<TensorRef> got = copies_on(runtime::host_device(), program.run(inputs));
        if (run == 0) first = got;
        for (size_t k = 0; k < first.size(); ++k)
            if (std::memcmp(first[k]->data(), got[k]->data(), first[k]->type().bytes()) != 0)
                throw runtime::InternalError(cat("result ", k, " has other bits in run ", run));
    }
    return first;
}

}  // namespace

std::string fault_of(const Subject& subject, Temper temper, runtime::Device& device) {
    try {
        runtime::Device& judge = temper == Temper::wild ? device : runtime::host_device();
        const std::vector<TensorRef> want = copies_on(
            runtime::host_device(),
            jit::interpret(on_device(subject.graph, judge), copies_on(judge, subject.inputs)));
        const std::vector<TensorRef> got =
            run_program(optimized(subject.graph, temper), subject, device);
        for (size_t k = 0; k < want.size(); ++k) {
            const double tolerance =
                temper == Temper::wild ? 0 : subject.tolerance[jit::at(subject.graph.outputs[k])];
            if (std::string fault = difference(*got[k], *want[k], tolerance); !fault.empty())
                return cat("result ", k, ": ", fault);
        }
    } catch (const std::exception& error) { return error.what(); }
    return "";
}

Footprint footprint_of(const Graph& graph, const Graph& recorded) {
    Footprint footprint;
    for (const jit::Node& node : graph.nodes()) {
        if (node.kind == jit::NodeKind::fused) ++footprint.kernels;
        else if (node.kind != jit::NodeKind::op || node.op->is_view) continue;
        for (ValueId id : std::set(node.inputs.begin(), node.inputs.end()))
            footprint.traffic += graph.type(id).bytes();
        for (ValueId id : node.outputs) footprint.traffic += graph.type(id).bytes();
    }
    const jit::Program program(graph, {recorded}, {});
    footprint.arena = program.plan().arena_bytes;
    footprint.peak_live = program.plan().peak_live_bytes;
    return footprint;
}

}  // namespace megjit::fuzz
