#include "jit/op_program.h"

#include <algorithm>

#include "jit/passes/passes.h"
#include "jit/program_layout.h"
#include "runtime/eager/dispatch.h"

namespace megjit::jit {
namespace {

class OpProgram final : public runtime::Executable {
public:
    OpProgram(PreparedGraph prepared, runtime::Device& device)
        : prepared_(std::move(prepared)),
          layout_(lay_out(prepared_, plan_buffers(prepared_, {}, {}, false))) {
        for (const ProgramLayout::Operand& operand : layout_.operands)
            if (operand.place == memory::Place::kConstant && !constants_.contains(operand.source))
                constants_.emplace(
                    operand.source,
                    runtime::readable_on(
                        device,
                        prepared_.graph.producer(static_cast<ValueId>(operand.source)).constant));
        for (size_t i = 0; i < layout_.outputs.size(); ++i)
            if (layout_.outputs[i].from == ProgramLayout::Output::From::result)
                output_of_result_.emplace(layout_.outputs[i].index, i);
    }

    // Does each output of the op have a place of its own?
    bool is_sound() const { return output_of_result_.size() == layout_.outputs.size(); }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        std::vector<void*> operands;
        operands.reserve(layout_.operands.size());
        for (const ProgramLayout::Operand& operand : layout_.operands)
            operands.push_back(
                static_cast<std::byte*>(start_of(operand, inputs, outputs, workspace)) +
                operand.offset);
        for (const ProgramLayout::Step& step : layout_.steps)
            jit::enqueue(prepared_, step, operands.data() + step.first_operand,
                         static_cast<std::byte*>(workspace), stream);
    }
    size_t workspace_bytes() const override { return layout_.arena_bytes; }
    size_t workspace_align() const override {
        size_t most = Executable::workspace_align();
        for (const PreparedNode& node : prepared_.nodes)
            if (node.executable) most = std::max(most, node.executable->workspace_align());
        return most;
    }

private:
    void* start_of(const ProgramLayout::Operand& operand, void* const* inputs, void* const* outputs,
                   void* workspace) const {
        switch (operand.place) {
            case memory::Place::kInput: return inputs[operand.source];
            case memory::Place::kOutput: return outputs[output_of_result_.at(operand.source)];
            case memory::Place::kConstant: return constants_.at(operand.source)->data();
            default: return workspace;
        }
    }

    PreparedGraph prepared_;
    ProgramLayout layout_;
    std::unordered_map<uint32_t, TensorRef> constants_;  // by value: on the device
    std::unordered_map<uint32_t, size_t> output_of_result_;
};

}  // namespace

std::shared_ptr<const runtime::Executable> op_program(runtime::Device& device,
                                                      const runtime::OpCall& call) {
    Graph graph;
    graph.set_device(device);
    Node node{.kind = NodeKind::op, .op = &call.op, .attrs = call.attrs};
    for (size_t i = 0; i < call.inputs.size(); ++i)
        node.inputs.push_back(graph.add_input(call.inputs[i], static_cast<int>(i)));
    graph.outputs = graph.add(std::move(node), runtime::infer(call));
    const PipelineOptions options{.opt_level = 3, .splits_products = true, .device = &device};
    graph = fold_constants(expand(std::move(graph), options));
    if (!device.is_host())
        graph = fuse(std::move(graph), options);  // a host computes single ops without code
    graph = drop_dead(std::move(graph));
    for (const Node& made : graph.nodes())
        if (made.op == &call.op) return nullptr;
    auto program = std::make_shared<const OpProgram>(prepare(std::move(graph), {}, false), device);
    return program->is_sound() ? program : nullptr;
}

}  // namespace megjit::jit
