#include "runtime/ops/epilogue.h"

#include <algorithm>
#include <sstream>

#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using Kind = EpilogueKind;

constexpr std::string_view kWords[] = {"bias", "add", "relu", "mask"};  // by kind

Kind kind_of(const OpCall& call, const std::string& word) {
    const bool of_gradient = call.op.epilogue->of_gradient;
    const auto found = std::find(std::begin(kWords), std::end(kWords), word);
    const auto kind = static_cast<Kind>(found - std::begin(kWords));
    if (found == std::end(kWords) || !takes_step(*call.op.epilogue, kind))
        refuse(call, cat("'", word, "' is not a step"),
               of_gradient ? "use add and mask" : "use bias, add and relu");
    return kind;
}

Attrs attrs_of_product(const OpCall& call) { return {call.attrs.begin(), call.attrs.end() - 1}; }

}  // namespace

std::vector<EpilogueStep> epilogue_of(const OpCall& call) {
    std::vector<EpilogueStep> steps;
    size_t next = 2;  // operands of steps follow the two factors
    std::istringstream words(call.text("epilogue"));
    for (std::string word; words >> word;) {
        EpilogueStep step{.kind = kind_of(call, word)};
        if (std::any_of(steps.begin(), steps.end(),
                        [&](const EpilogueStep& other) { return other.kind == step.kind; }))
            refuse(call, cat("'", word, "' stands twice"));
        if (step.takes_operand()) step.operand = next++;
        steps.push_back(step);
    }
    if (next != call.inputs.size())
        refuse(call, cat("'", call.text("epilogue"), "' takes ", next - 2,
                         " operands, and there are ", call.inputs.size() - 2));
    return steps;
}

std::string epilogue_text(std::span<const EpilogueStep> steps) {
    std::string text;
    for (const EpilogueStep& step : steps)
        text += cat(text.empty() ? "" : " ", kWords[static_cast<size_t>(step.kind)]);
    return text;
}

bool is_bias(const Type& bias, const Type& y, int channel) {
    const int offset = y.rank() - bias.rank();
    if (bias.dtype != y.dtype || offset > channel || offset < 0) return false;
    for (int axis = 0; axis < bias.rank(); ++axis)
        if (bias.shape[axis] != (axis + offset == channel ? y.shape[channel] : 1)) return false;
    return true;
}

bool takes_step(const EpilogueSpec& spec, EpilogueKind kind) {
    return kind == Kind::add || spec.of_gradient == (kind == Kind::mask);
}

bool takes_halves(const OpDef& product, DType dtype) {
    return product.epilogue->takes_halves && (dtype == DType::f16 || dtype == DType::bf16);
}

void check_epilogue(const OpCall& call, const Type& y) {
    if (y.dtype != DType::f32 && !takes_halves(call.op, y.dtype))
        refuse(call, cat("the dtype is float32, not ", info(y.dtype).name), "cast to float32",
               ErrorKind::type);
    const int channel = call.op.epilogue->bias_axis_of(y);
    for (const EpilogueStep& step : epilogue_of(call)) {
        if (!step.takes_operand()) continue;
        const Type& operand = call.inputs[step.operand];
        if (step.kind == Kind::bias && !is_bias(operand, y, channel))
            refuse(call, cat("the bias ", to_string(operand), " does not lie along axis ", channel,
                             " of ", to_string(y)));
        if (step.kind != Kind::bias && (operand.dtype != y.dtype || !(operand.shape == y.shape)))
            refuse(call,
                   cat(to_string(operand), step.kind == Kind::add ? " is added to " : " masks ",
                       to_string(y)),
                   "do it in an op of its own");
    }
}

Tensors expand_epilogue(const OpCall& call, std::span<const TensorRef> inputs,
                        const OpDef& product) {
    TensorRef y = apply(product, attrs_of_product(call), inputs.first(2), nullptr)[0];
    for (const EpilogueStep& step : epilogue_of(call))
        y = step.kind == Kind::mask ? build::op("relu.grad0", {inputs[step.operand], y})
            : step.takes_operand()  ? build::add(y, inputs[step.operand])
                                    : build::op("relu", {y});
    return {y};
}

Grads grad_of_epilogue(const GradCall& g, const OpDef& product) {
    const std::vector<EpilogueStep> steps = epilogue_of(g.call);
    TensorRef dy = g.out_grads[0];
    Grads grads(g.inputs.size());
    for (size_t i = steps.size(); i-- > 0;) {
        const EpilogueStep& step = steps[i];
        if (step.kind == Kind::relu && i + 1 < steps.size())
            refuse(g.call, "a gradient needs relu to be the last step of the epilogue",
                   "apply relu as an op of its own");
        const bool is_mask = step.kind == Kind::mask;
        if (step.kind == Kind::relu || is_mask) {
            const TensorRef& y = is_mask ? g.inputs[step.operand] : g.outputs[0];
            dy = build::where(build::op("greater", {y, build::number(0, dy)}), dy,
                              build::zeros_like(dy));
        }
        if (step.takes_operand() && !is_mask && g.needs[step.operand])
            grads[step.operand] = build::reduce_to(dy, g.inputs[step.operand]->shape());
    }
    const Attrs attrs = attrs_of_product(g.call);
    const OpCall call{product, attrs, g.call.inputs.first(2)};
    const Grads factors =
        product.grad({call, g.inputs.first(2), g.outputs, {&dy, 1}, g.needs.first(2)});
    std::copy(factors.begin(), factors.end(), grads.begin());
    return grads;
}

}  // namespace megjit::runtime
