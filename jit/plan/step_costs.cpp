#include "jit/plan/step_costs.h"

#include <algorithm>

#include "codegen/gpu_plan.h"
#include "jit/plan/graph_program.h"
#include "jit/step/host_copy.h"
#include "runtime/ops/known.h"

namespace megjit::jit {
namespace {

using runtime::OpCall;

// Does the op read of operand 0 only what the result has?
bool is_picked(const OpDef& op) {
    return op.access == runtime::Access::picked || &op == &runtime::ops::slice();
}

double picked_bytes(std::span<const Type> inputs, std::span<const Type> outputs) {
    double bytes = 0;
    for (const Type& type : outputs) bytes += 2 * static_cast<double>(type.bytes());
    for (const Type& type : inputs.subspan(1)) bytes += static_cast<double>(type.bytes());
    return bytes;
}

class Costing {
public:
    Costing(const PreparedGraph& prepared, const ProgramLayout& layout)
        : prepared_(prepared), layout_(layout), device_(prepared.graph.device()), costs_(device_) {}

    std::vector<StepCost> run() const {
        std::vector<StepCost> costs;
        for (const PreparedNode& entry : prepared_.nodes) costs.push_back(of(entry));
        for (const ProgramLayout::Step& step : layout_.steps)
            if (step.is_copy) add_copy(costs[step.node], step);
            else add_queued(costs[step.node], step);
        return costs;
    }

private:
    StepCost of(const PreparedNode& entry) const {
        const Node& node = prepared_.graph.node(entry.node);
        StepCost cost{.where = node.where};
        if (node.kind == NodeKind::fused) cost.ops = node.ops;
        else cost.ops = {node.op->name};
        if (!entry.executable) {  // a view
            cost.seconds = 0;
            return cost;
        }
        if (node.kind == NodeKind::fused) add_kernel(cost, node);
        else if (is_host_copy(node)) add_transfer(cost, node);
        else if (auto* program = dynamic_cast<const GraphProgram*>(entry.executable.get()))
            add_program(cost, *program);
        else add_op(cost, node, *entry.executable);
        return cost;
    }

    void add_kernel(StepCost& cost, const Node& node) const {
        const codegen::KernelIR& kernel = node.kernel->kernel;
        cost.by = "a generated kernel";
        cost.kernel = codegen::print(kernel);
        cost.seconds = 0;
        codegen::KernelWork joint;  // of launches that share a grid
        std::span<const ValueId> inputs = node.inputs;  // of the launches that are left
        for (const codegen::LaunchShape& launch : launches_of(node)) {
            codegen::KernelWork work =
                codegen::work_of(kernel, launch, device_.target(), costs_.cache_bytes());
            for (size_t i = 0; i < codegen::memory_inputs(kernel); ++i)
                if (kernel.inputs[i].by >= 0) work.bytes -= read_again(launch, inputs[i]);
            inputs = inputs.subspan(codegen::memory_inputs(kernel));
            if (codegen::gpu_plan_of(kernel, launch, device_.target()).joins) {
                joint.bytes += work.bytes;
                joint.instructions += work.instructions;
            } else {
                *cost.seconds += costs_.launch_of(work).seconds;
            }
            cost.bytes += work.bytes;
            cost.flops += work.flops;
            cost.instructions += work.instructions;
            cost.instructions_of_element = work.instructions_of_element;
        }
        if (joint.bytes > 0) *cost.seconds += costs_.launch_of(joint).seconds;
    }

    // What a launch reads more than once of a tensor whose rows it finds by a map.
    double read_again(const codegen::LaunchShape& launch, ValueId rows) const {
        const Type& type = prepared_.graph.type(rows);
        return static_cast<double>(std::max<int64_t>(0, launch.numel() - type.numel())) *
               static_cast<double>(runtime::size_of(type.dtype));
    }

    void add_transfer(StepCost& cost, const Node& node) const {
        const auto bytes = static_cast<double>(prepared_.graph.type(node.outputs[0]).bytes());
        cost.by = "a transfer to or from the host";
        cost.seconds = costs_.transfer(bytes);
    }

    void add_program(StepCost& cost, const GraphProgram& program) const {
        cost.by = "generated kernels";
        cost.seconds = 0;
        for (const StepCost& part : step_costs(program.planned(), program.layout())) {
            cost.bytes += part.bytes;
            cost.flops += part.flops;
            cost.instructions += part.instructions;
            if (!part.seconds) cost.seconds.reset();
            else if (cost.seconds)  // launches are added for the whole
                *cost.seconds += *part.seconds - costs_.launches(part.launches);
        }
    }

    void add_op(StepCost& cost, const Node& node, const runtime::Executable& executable) const {
        const std::vector<Type> inputs = prepared_.graph.types(node.inputs),
                                outputs = prepared_.graph.types(node.outputs);
        const OpCall call{*node.op, node.attrs, inputs};
        const runtime::Cost work = runtime::cost_of(call, outputs);
        cost.by = executable.remark().empty() ? "a kernel of ours" : executable.remark();
        const double own_bytes = is_picked(*node.op) ? picked_bytes(inputs, outputs) : work.bytes;
        cost.bytes = own_bytes + executable.copied_bytes();
        if (work.is_product) cost.flops = work.flops;
        const Estimate computing = costs_.computing(call, outputs);
        cost.source = computing.source;
        cost.seconds = std::max(computing.seconds, costs_.traffic(own_bytes)) +
                       costs_.traffic(executable.copied_bytes());
    }

    // The operands of a step where the layout puts them, in memory that nobody reads.
    std::vector<void*> operands_of(const ProgramLayout::Step& step) const {
        constexpr uint64_t kOther = uint64_t{1} << 40;  // bytes
        const size_t count = step.inputs + prepared_.node(step.node).outputs.size();
        std::vector<void*> operands;
        for (size_t i = 0; i < count; ++i) {
            const ProgramLayout::Operand& operand = layout_.operands[step.first_operand + i];
            const uint64_t start = layout_.start_of(operand, kArena, [](uint32_t slot) {
                return (2 + 3 * slot) * kOther;
            }, [](uint32_t output) { return (3 + 3 * output) * kOther; }, [](uint32_t value) {
                return (4 + 3 * value) * kOther;
            });
            operands.push_back(reinterpret_cast<void*>(start + operand.offset));
        }
        return operands;
    }

    void add_queued(StepCost& cost, const ProgramLayout::Step& step) const {
        const Node& node = prepared_.node(step.node);
        const std::vector<void*> operands = operands_of(step);
        void* const* const outputs = operands.data() + step.inputs;
        const auto queued =
            device_.rehearse(*prepared_.nodes[step.node].executable, operands.data(), outputs,
                             reinterpret_cast<void*>(kArena + step.workspace));
        if (!queued) return cost.seconds.reset();
        const int64_t launches = queued->kernels + queued->calls + queued->moves;
        cost.launches += launches;
        cost.blocks += queued->blocks;
        if (launches == 0) {  // the results lie there already
            cost.bytes = 0;
            cost.seconds = 0;
        }
        // What is written in place of an operand leaves the rest of it alone.
        const bool writes_part = node.op && (node.op->access == runtime::Access::written ||
                                             node.op == &runtime::ops::slice_set());
        if (launches != 0 && writes_part && outputs[0] == operands[0]) only_part(cost, node);
        // Only operands that do not lie in the result are copied.
        else if (launches != 0 && launches == queued->moves) set_bytes(cost, queued->moved_bytes);
        if (cost.seconds) *cost.seconds += costs_.launches(launches);
    }

    void only_part(StepCost& cost, const Node& node) const {
        double bytes = 0;
        for (size_t i = 1; i < node.inputs.size(); ++i)
            bytes += 2 * static_cast<double>(prepared_.graph.type(node.inputs[i]).bytes());
        set_bytes(cost, bytes);
    }

    void set_bytes(StepCost& cost, double bytes) const {
        if (cost.seconds) *cost.seconds += costs_.traffic(bytes) - costs_.traffic(cost.bytes);
        cost.bytes = bytes;
    }

    void add_copy(StepCost& cost, const ProgramLayout::Step& step) const {
        const double bytes = 2 * static_cast<double>(step.copy_bytes);
        ++cost.launches;
        cost.bytes += bytes;
        if (cost.seconds) *cost.seconds += costs_.traffic(bytes) + costs_.launches(1);
    }

    static constexpr uint64_t kArena = uint64_t{1} << 48;  // an address that nobody reads
    const PreparedGraph& prepared_;
    const ProgramLayout& layout_;
    runtime::Device& device_;
    const Costs costs_;
};

}  // namespace

std::vector<StepCost> step_costs(const PreparedGraph& prepared, const ProgramLayout& layout) {
    return Costing(prepared, layout).run();
}

}  // namespace megjit::jit
