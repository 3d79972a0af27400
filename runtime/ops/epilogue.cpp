#include "runtime/ops/epilogue.h"

#include <algorithm>
#include <sstream>

#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using Kind = EpilogueStep::Kind;

Kind kind_of(const OpCall& call, const std::string& word) {
    if (word == "bias") return Kind::bias;
    if (word == "add") return Kind::add;
    if (word == "relu") return Kind::relu;
    refuse(call, cat("epilogue E2: '", word, "' is no step"), "use bias, add and relu");
}

}  // namespace

std::vector<EpilogueStep> epilogue_of(const OpCall& call) {
    std::vector<EpilogueStep> steps;
    size_t next = 2;  // behind the factors
    std::istringstream words(call.text("epilogue"));
    for (std::string word; words >> word;) {
        EpilogueStep step{.kind = kind_of(call, word)};
        if (std::any_of(steps.begin(), steps.end(), [&](const EpilogueStep& other) { return other.kind == step.kind; }))
            refuse(call, cat("epilogue E2: '", word, "' stands twice"));
        if (step.takes_operand()) step.operand = next++;
        steps.push_back(step);
    }
    if (next != call.inputs.size())
        refuse(call, cat("epilogue E3: '", call.text("epilogue"), "' takes ", next - 2, " operands, and there are ", call.inputs.size() - 2));
    return steps;
}

bool is_bias(const Type& bias, const Type& y, int channel) {
    const int offset = y.rank() - bias.rank();
    if (bias.dtype != y.dtype || offset > channel || offset < 0) return false;
    for (int axis = 0; axis < bias.rank(); ++axis)
        if (bias.shape[axis] != (axis + offset == channel ? y.shape[channel] : 1)) return false;
    return true;
}

void check_epilogue(const OpCall& call, const Type& y, int channel) {
    if (y.dtype != DType::f32)
        refuse(call, cat("epilogue E1: the dtype is float32, not ", info(y.dtype).name), "cast to float32", ErrorKind::type);
    for (const EpilogueStep& step : epilogue_of(call)) {
        if (!step.takes_operand()) continue;
        const Type& operand = call.inputs[step.operand];
        if (step.kind == Kind::bias && !is_bias(operand, y, channel))
            refuse(call, cat("epilogue E4: the bias ", to_string(operand), " does not lie along axis ", channel, " of ", to_string(y)));
        if (step.kind == Kind::add && (operand.dtype != y.dtype || !(operand.shape == y.shape)))
            refuse(call, cat("epilogue E5: ", to_string(operand), " is added to ", to_string(y)), "add it in an op of its own");
    }
}

}  // namespace megjit::runtime
