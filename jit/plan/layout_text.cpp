// A layout as text, for MEGJIT_DUMP=plan: each step with the places of its operands.
#include "jit/plan/program_layout.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::cat;

std::string text_of(const ProgramLayout::Operand& operand) {
    constexpr const char* kPlaces[] = {"arena", "input", "constant", "output", "host"};
    const auto place = static_cast<size_t>(operand.place);
    return cat(" ", kPlaces[place], place == 0 ? "" : cat(" ", operand.source), "+",
               operand.offset);
}

std::string text_of(const ProgramLayout& layout, size_t index, const PreparedGraph& prepared) {
    const ProgramLayout::Step& step = layout.steps[index];
    const size_t behind = index + 1 < layout.steps.size() ? layout.steps[index + 1].first_operand
                                                          : layout.operands.size();
    std::string line =
        step.is_copy ? cat("copy of ", step.copy_bytes) : name_of(prepared.node(step.node));
    for (size_t i = step.first_operand; i < behind; ++i) line += text_of(layout.operands[i]);
    line += cat(" workspace+", step.workspace);
    if (step.is_transfer) line += " transfer";
    if (step.waits_for != memory::kNone) line += cat(" waits for ", step.waits_for);
    return line + "\n";
}

}  // namespace

std::string print(const ProgramLayout& layout, const PreparedGraph& prepared) {
    std::string text = cat("arena ", layout.arena_bytes, " host ", layout.host_bytes, "\n");
    for (size_t i = 0; i < layout.steps.size(); ++i) text += text_of(layout, i, prepared);
    for (const ProgramLayout::Result& result : layout.results)
        text += cat("result: value ", at(result.value),
                    result.is_donated ? cat(" over input ", result.slot) : "", "\n");
    for (const ProgramLayout::Output& output : layout.outputs) {
        constexpr const char* kFrom[] = {"result", "input", "constant"};
        text += cat("output: ", kFrom[static_cast<size_t>(output.from)], " ", output.index, "\n");
    }
    for (const uint32_t slot : layout.overwritten) text += cat("overwritten: input ", slot, "\n");
    return text;
}

}  // namespace megjit::jit
