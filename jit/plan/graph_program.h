// jit/plan/graph_program.h -- GraphProgram: a graph as an executable, for ops that are computed as
// one: those made of simpler ops (op_program.h), and those that hold graphs
// (ops/control_flow_program.h).
#pragma once

#include <mutex>

#include "jit/plan/program_layout.h"

namespace megjit::jit {

// Inputs by slot; the workspace is the arena of values between. Each output has memory of its
// own, also where the graph returns an input, a constant or one value twice.
class GraphProgram final : public runtime::Executable {
public:
    // Plans for the graph's device. `in_place`: by output, the slot that it may replace, or -1.
    explicit GraphProgram(Graph graph, const std::vector<int>& in_place = {});

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override;
    size_t workspace_bytes() const override { return layout_.arena_bytes; }
    size_t workspace_align() const override;
    bool waits_for_values() const override { return jit::waits_for_values(planned_); }
    // Is output `output` written where that input lies, which holds nothing else?
    bool lies_on(size_t output, uint32_t slot) const;
    const PreparedGraph& planned() const { return planned_; }
    const ProgramLayout& layout() const { return layout_; }

private:
    const PreparedGraph& prepared() const;
    void* address(const ProgramLayout::Operand& operand, void* const* inputs, void* const* outputs,
                  void* workspace) const;
    void copy_outputs(runtime::Stream& stream, void* const* inputs, void* const* outputs) const;

    PreparedGraph planned_;
    ProgramLayout layout_;
    std::vector<TensorRef> constants_;  // by value: on the device
    // Kernels are asked for at the first run: a plan may never run.
    mutable std::once_flag once_;
    mutable PreparedGraph prepared_;
};

}  // namespace megjit::jit
