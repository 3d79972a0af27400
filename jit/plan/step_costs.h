// jit/plan/step_costs.h -- what each step of a planned program asks of a GPU, and how long that
// takes by the card's figures (costs.h). Nothing runs: launches and blocks are those that the
// prepared steps would queue, bytes and instructions are counted from kernels and ops.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jit/plan/costs.h"
#include "jit/plan/program_layout.h"

namespace megjit::jit {

struct StepCost {
    std::vector<std::string> ops = {};
    std::string where = {};
    std::string by = {};  // "a generated kernel", "cuDNN 9.27.0: ...", "a kernel of ours"
    std::string kernel = {};  // the generated kernel, as text
    int64_t launches = 0;  // of kernels, libraries and the driver's copies
    int64_t blocks = 0;  // of all kernels that are not a library's
    double bytes = 0;  // read from memory and written to it
    double flops = 0;  // of products
    double instructions = 0;  // of generated code, for all elements
    double instructions_of_element = 0;
    std::optional<double> seconds = {};  // nothing: not known, as its work follows from values
    CostSource source = CostSource::model;  // of its arithmetic
};

// A row for each node of a graph that was prepared to be planned (prepare_to_plan) for a device
// that is for plans alone, and laid out. Views ask for nothing.
std::vector<StepCost> step_costs(const PreparedGraph& prepared, const ProgramLayout& layout);

}  // namespace megjit::jit
