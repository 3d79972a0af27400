// The text form of a kernel. It is the wire format to compiler plug-ins and the key of the cache,
// so reading it back gives exactly the same instructions: nothing is folded or renumbered.
#include <charconv>
#include <cstdlib>
#include <optional>

#include "codegen/line_reader.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

constexpr std::string_view kInnerNames[] = {"contiguous", "broadcast", "strided", "transposed"};
constexpr std::string_view kLaneNames[] = {"last", "kept", "tiles", "panels"};
constexpr std::string_view kReduceNames[] = {"sum",    "prod", "max",      "min", "argmax",
                                             "argmin", "mean", "variance", "dot"};
constexpr std::string_view kTypeNames[] = {"f32", "i32", "b1", "f64", "i64"};
uint64_t constant_bits(LineReader& line, ScalarType type) {
    const std::string text(line.word());
    if (text.starts_with("0x") && static_cast<int>(text.size()) <= 2 + runtime::bits_in(type) / 4) {
        uint64_t bits = 0;
        const auto [end, error] =
            std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
        if (error != std::errc() || end != text.data() + text.size())
            line.fault(cat("'", text, "' is not a number"));
        return bits;
    }
    switch (type) {
        case ScalarType::i32: return static_cast<uint32_t>(line.number<int32_t>(text));
        case ScalarType::i64: return static_cast<uint64_t>(line.number<int64_t>(text));
        case ScalarType::f64: return std::bit_cast<uint64_t>(line.number<double>(text));
        case ScalarType::b1:
            if (text != "true" && text != "false")
                line.fault(cat("'", text, "' is neither true nor false"));
            return text == "true";
        case ScalarType::f32: return std::bit_cast<uint32_t>(line.number<float>(text));
    }
    return 0;
}

// Reads "%2: f32 = mul %0 %1"; `name` is "%2:".
ScalarInst read_inst(LineReader& line, std::string_view name, int expected_id) {
    if (name != cat("%", expected_id, ":")) line.fault(cat("expected %", expected_id, ":"));
    ScalarInst inst;
    inst.type = static_cast<ScalarType>(
        line.one_of(kTypeNames, line.word(), "a type: f32, i32, b1, f64 or i64"));
    if (line.word() != "=") line.fault("expected '=' after the type");
    inst.op = line.scalar_op();
    if (inst.op == ScalarOp::input) inst.bits = line.number<uint32_t>(line.word());
    if (inst.op == ScalarOp::constant) inst.bits = constant_bits(line, inst.type);
    if (inst.op == ScalarOp::narrow) inst.narrow_to = line.dtype();
    for (int k = 0; k < arity_of(inst.op); ++k) inst.args[k] = line.value_id();
    return inst;
}

std::string text_of(const Operand& operand, bool is_input) {
    std::string text(info(operand.dtype).tag);
    if (is_input || operand.inner != Inner::contiguous)
        text += cat(" ", kInnerNames[static_cast<int>(operand.inner)]);
    if (operand.per_row) text += " row";
    if (operand.is_offset) text += " offset";
    if (operand.by >= 0) text += cat(" by ", operand.by);
    if (operand.repeats) text += " repeats";
    return text;
}

// Reads "f32 strided row"; an output is contiguous if nothing is said. The value that follows is
// left in the line.
Operand read_operand(LineReader& line, bool is_input) {
    Operand operand;
    operand.dtype = line.dtype();
    if (is_input)
        operand.inner = static_cast<Inner>(
            line.one_of(kInnerNames, line.word(), "contiguous, broadcast, strided or transposed"));
    else if (line.take("broadcast")) operand.inner = Inner::broadcast;
    else if (line.take("strided")) operand.inner = Inner::strided;
    operand.per_row = line.take("row");
    if (is_input) operand.is_offset = line.take("offset");
    if (is_input && line.take("by")) operand.by = line.number<int>(line.word());
    if (is_input) operand.repeats = line.take("repeats");
    return operand;
}

void read_head(LineReader& line, KernelIR& kernel) {
    const auto value_of = [&](std::string_view name) {
        const std::string_view word = line.word();
        if (!word.starts_with(name)) line.fault(cat("expected '", name, "...'"));
        return word.substr(name.size());
    };
    kernel.rank = line.number<int>(value_of("rank="));
    if (line.at_end()) return;
    kernel.reduced = line.number<int>(value_of("reduced="));
    kernel.lanes = static_cast<Lanes>(
        line.one_of(kLaneNames, value_of("lanes="), "last, kept, tiles or panels"));
}

}  // namespace

std::string_view name_of(Reduce kind) { return kReduceNames[static_cast<int>(kind)]; }

std::string print(const KernelIR& kernel) {
    std::string text = cat("kernel rank=", kernel.rank);
    if (kernel.reduced)
        text +=
            cat(" reduced=", kernel.reduced, " lanes=", kLaneNames[static_cast<int>(kernel.lanes)]);
    text += "\n";
    for (const Operand& input : kernel.inputs) text += cat("in ", text_of(input, true), "\n");
    text += to_string(kernel.program);
    for (const Reduction& reduction : kernel.reductions)
        text += cat("reduce ", name_of(reduction.kind), " %", reduction.arg, "\n");
    for (size_t k = 0; k < kernel.outputs.size(); ++k)
        text += cat("out ", text_of(kernel.outputs[k], false), " %",
                    k < kernel.results.size() ? kernel.results[k] : -1, "\n");
    return text;
}

KernelIR parse_kernel(std::string_view text) {
    KernelIR kernel;
    std::vector<ScalarInst> insts;
    bool has_head = false;
    for (int number = 1; !text.empty(); ++number) {
        const size_t size = std::min(text.find('\n'), text.size());
        LineReader line("kernel text", text.substr(0, size), number);
        text.remove_prefix(std::min(size + 1, text.size()));
        if (line.at_end()) continue;
        const std::string_view first = line.word();
        if (first == "kernel") {
            if (has_head) line.fault("expected one head, 'kernel rank=N'");
            read_head(line, kernel);
            has_head = true;
        } else if (first == "in") {
            kernel.inputs.push_back(read_operand(line, true));
        } else if (first == "reduce") {
            const int kind = line.one_of(kReduceNames, line.word(), "a reduction");
            kernel.reductions.push_back({static_cast<Reduce>(kind), line.value_id()});
        } else if (first == "out") {
            kernel.outputs.push_back(read_operand(line, false));
            kernel.results.push_back(line.value_id());
        } else if (first.starts_with('%')) {
            insts.push_back(read_inst(line, first, static_cast<int>(insts.size())));
        } else {
            line.fault("a line begins with kernel, in, reduce, out or a value such as %0:");
        }
        line.expect_end();
    }
    if (!has_head) user_error({.what = "kernel text: the line 'kernel rank=N' is missing"});
    kernel.program = ScalarProgram(std::move(insts));
    return kernel;
}

}  // namespace megjit::codegen
