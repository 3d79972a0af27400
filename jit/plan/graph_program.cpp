#include "jit/plan/graph_program.h"

#include <algorithm>

#include "runtime/eager/dispatch.h"
#include "runtime/host/debug.h"

namespace megjit::jit {
namespace {

// Gives the kernels that are done, and waits for one that only code can run.
Kernels kernels_of(const Graph& graph) {
    codegen::KernelService& service = codegen::KernelService::instance();
    Kernels kernels;
    for (const Node& node : graph.nodes()) {
        if (node.kind != NodeKind::fused) continue;
        const codegen::KernelJob job{node.kernel->kernel, graph.device().target(),
                                     launches_of(node)[0]};
        if (!codegen::runs_without_code(job.kernel)) {
            kernels.push_back(service.get(job));
            continue;
        }
        const auto request = service.request(job);
        kernels.push_back(request->is_done() ? request->compiled() : nullptr);
    }
    return kernels;
}

// A run of the graph may write each such output over that input.
Step in_place_of(const std::vector<int>& slots) {
    Step step;
    for (const int slot : slots) {
        step.outputs.push_back({.replaces = slot});
        if (slot < 0) continue;
        step.inputs.resize(std::max(step.inputs.size(), static_cast<size_t>(slot) + 1));
        step.inputs[static_cast<size_t>(slot)].is_released = true;
    }
    return step;
}

}  // namespace

GraphProgram::GraphProgram(Graph graph, const std::vector<int>& in_place)
    : planned_(prepare_to_plan(std::move(graph), {})),
      layout_(
          lay_out(planned_, plan_buffers(planned_, in_place_of(in_place), runtime::debug().check))),
      constants_(planned_.graph.value_count()) {
    for (const Node& node : planned_.graph.nodes())
        if (node.kind == NodeKind::constant)
            constants_[at(node.outputs[0])] =
                runtime::readable_on(planned_.graph.device(), node.constant);
}

bool GraphProgram::lies_on(size_t output, uint32_t slot) const {
    const auto [from, index] = layout_.outputs[output];
    if (from != ProgramLayout::Output::From::result || layout_.first_outputs[index] != output)
        return false;
    const ProgramLayout::Result& result = layout_.results[index];
    return result.is_donated && result.slot == slot;
}

const PreparedGraph& GraphProgram::prepared() const {
    if (planned_.graph.device().is_for_plans()) return planned_;
    std::call_once(once_, [this] {
        prepared_ = prepare(planned_.graph, kernels_of(planned_.graph), runtime::debug().check);
    });
    return prepared_;
}

size_t GraphProgram::workspace_align() const {
    size_t most = Executable::workspace_align();
    for (const PreparedNode& node : planned_.nodes)
        if (node.executable) most = std::max(most, node.executable->workspace_align());
    return most;
}

void* GraphProgram::address(const ProgramLayout::Operand& operand, void* const* inputs,
                            void* const* outputs, void* workspace) const {
    void* const start = layout_.start_of(
        operand, workspace, [&](uint32_t slot) { return inputs[slot]; }, [&](uint32_t output) {
        return outputs[output];
    }, [&](uint32_t value) { return constants_[value]->data(); });
    return static_cast<std::byte*>(start) + operand.offset;
}

void GraphProgram::enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                           void* workspace) const {
    const PreparedGraph& prepared = this->prepared();
    std::vector<void*> operands;
    operands.reserve(layout_.operands.size());
    for (const ProgramLayout::Operand& operand : layout_.operands)
        operands.push_back(address(operand, inputs, outputs, workspace));
    for (const ProgramLayout::Step& step : layout_.steps)
        jit::enqueue(prepared, step, operands.data() + step.first_operand,
                     static_cast<std::byte*>(workspace), stream);
    copy_outputs(stream, inputs, outputs);
}

void GraphProgram::copy_outputs(runtime::Stream& stream, void* const* inputs,
                                void* const* outputs) const {
    for (size_t i = 0; i < layout_.outputs.size(); ++i)
        if (const auto from = layout_.copied_from(i))
            stream.copy(outputs[i], address(*from, inputs, outputs, nullptr),
                        planned_.graph.type(planned_.graph.outputs[i]).bytes());
}

}  // namespace megjit::jit
