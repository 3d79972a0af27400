#include "backends/nvrtc/print_elements.h"

#include "backends/nvrtc/print_scalar.h"
#include "runtime/error.h"

namespace megjit::nvrtc {

using namespace codegen;
using namespace runtime;

ElementPrinter::ElementPrinter(const KernelIR& kernel, const GpuPlan& plan)
    : kernel_(kernel),
      plan_(plan),
      rows_(row_plan_of(kernel)),
      operands_(kernel.inputs.size() + kernel.outputs.size()),
      first_walked_(kernel.reduced ? kernel.kept() : 0) {}

void ElementPrinter::line(const std::string& text) {
    text_.append(static_cast<size_t>(4 * depth_), ' ').append(text) += '\n';
}

void ElementPrinter::value(int id, const std::string& text) {
    line(cat("const ", type_name(kernel_.program[id].type), " v", id, " = ", text, ";"));
}

std::string ElementPrinter::product(int first, int last) const {
    std::string text;
    for (int axis = first; axis < last; ++axis)
        text += cat(axis > first ? " * " : "", "Index(n", axis, ")");
    return text.empty() ? "1" : text;
}

std::string ElementPrinter::offset(std::string base, size_t at, int first, int last) const {
    const Operand& it = operand(kernel_, at);
    for (int axis = first; axis < last; ++axis) {
        if (it.per_row && axis >= kernel_.kept()) break;
        const bool is_lane = axis == kernel_.lane_axis();
        if (is_lane && it.inner == Inner::broadcast) continue;
        base += cat(base.empty() ? "i" : " + i", axis);
        if (!is_lane || it.inner == Inner::strided) base += cat(" * Index(s", at, "_", axis, ")");
    }
    return base.empty() ? "0" : base;
}

void ElementPrinter::coordinates(const std::string& linear, int first, int last) {
    if (first == last) return;
    const bool is_one = last - first == 1;
    if (!is_one) line(cat("Count rest", first, " = ", linear, ";"));
    for (int axis = last - 1; axis > first; --axis) {
        line(cat("const Index i", axis, " = rest", first, " % Count(n", axis, ");"));
        line(cat("rest", first, " /= Count(n", axis, ");"));
    }
    line(cat("const Index i", first, " = ", is_one ? linear : cat("rest", first), ";"));
}

// Is the index by which the input is gathered the same for neighbours on the lane axis?
bool ElementPrinter::is_gathered_once(size_t input) const {
    const int by = kernel_.inputs[input].by;
    return by >= 0 &&
           (!is_walked(by) || kernel_.inputs[static_cast<size_t>(by)].inner == Inner::broadcast);
}

std::vector<bool> ElementPrinter::read_inputs(const RowWalk& walk) const {
    std::vector<bool> read(kernel_.inputs.size(), false);
    for (const int id : walk.elements)
        if (const ScalarInst& inst = kernel_.program[id]; inst.op == ScalarOp::input)
            read[inst.bits] = true;
    return read;
}

void ElementPrinter::offsets(const RowWalk& walk) {
    const std::vector<bool> read = read_inputs(walk);
    std::vector<bool> used = read;
    used.resize(operands_);
    for (size_t i = 0; i < kernel_.inputs.size(); ++i)
        if (const int by = kernel_.inputs[i].by; read[i] && by >= 0 && is_walked(by))
            used[static_cast<size_t>(by)] = true;
    for (const size_t k : walk.outputs) used[kernel_.inputs.size() + k] = true;
    for (size_t at = 0; at < operands_; ++at) {
        if (!used[at]) continue;
        const bool is_row_major = kernel_.reduced == 0 && is_output(kernel_, at);
        line(cat("const Index e", at, " = ",
                 is_row_major
                     ? "j"
                     : offset(kernel_.reduced ? cat("o", at) : "", at, first_walked_, kernel_.rank),
                 ";"));
    }
}

void ElementPrinter::packs(const RowWalk& walk) {
    const std::vector<bool> read = read_inputs(walk);
    for (size_t i = 0; i < kernel_.inputs.size(); ++i) {
        if (!read[i]) continue;
        const int by = kernel_.inputs[i].by;
        if (is_gathered_once(i) && is_walked(by))
            line(cat("const long long t", i, " = in", by, "[e", by, "] * g", i, ";"));
        if (is_packed(i))
            line(cat("const auto p", i, " = load_pack<", plan_.vector, ">(in", i, " + e", i,
                     by >= 0 ? cat(" + t", i) : "", has_tail() ? ", some" : "", ");"));
    }
    for (const size_t k : walk.outputs)
        if (const size_t at = kernel_.inputs.size() + k; is_packed(at))
            line(cat("Pack<", plan_.vector, ", ", storage_name(kernel_.outputs[k].dtype), "> p", at,
                     ";"));
}

void ElementPrinter::store_packs(const RowWalk& walk) {
    for (const size_t k : walk.outputs)
        if (const size_t at = kernel_.inputs.size() + k; is_packed(at))
            line(cat("store_pack(out", k, " + e", at, ", p", at, has_tail() ? ", some" : "", ");"));
}

// The offset of lane k from lane 0; behind the end of a tail, that of some lane before it.
std::string ElementPrinter::lane_offset(size_t at) const {
    if (plan_.vector == 1) return "";
    const char* lane = has_tail() ? "c" : "k";
    switch (operand(kernel_, at).inner) {
        case Inner::contiguous: return cat(" + ", lane);
        case Inner::broadcast: return "";
        case Inner::strided: return cat(" + ", lane, " * Index(s", at, "_", kernel_.rank - 1, ")");
    }
    return "";
}

std::string ElementPrinter::element_of(size_t i) const {
    const Operand& input = kernel_.inputs[i];
    const std::string place = cat("e", i, lane_offset(i));
    if (input.is_offset) return cat("(int)(", place, ")");
    if (is_packed(i)) return widened(input.dtype, cat("p", i, ".at[k]"));
    std::string gathered;
    if (is_gathered_once(i)) gathered = cat(" + t", i);
    else if (input.by >= 0)
        gathered = cat(" + in", input.by, "[e", input.by,
                       lane_offset(static_cast<size_t>(input.by)), "] * g", i);
    return widened(input.dtype, cat("in", i, "[", place, gathered, "]"));
}

// The chains take an element, or lanes themselves.
void ElementPrinter::take(const Reduced& reduced) {
    const std::string place = plan_.vector > 1 ? "(int)j + k" : "(int)j";
    for (size_t n = 0; n < reduced.accumulators.size(); ++n) {
        const Accumulator& by = reduced.accumulators[n];
        std::string x = cat("v", reduced.arg);
        if (by.wide && !by.chains) x = cat("double(", x, ")");
        if (by.squares) x = cat(x, " * ", x);
        line(cat(by.chains ? "c" : "a", reduced.reduction, "_", n, ".join({", x,
                 by.has_place() ? cat(", ", place) : "", "});"));
    }
}

void ElementPrinter::lanes(const RowWalk& walk) {
    for (const int id : walk.elements) {
        const ScalarInst& inst = kernel_.program[id];
        value(id,
              inst.op == ScalarOp::input ? element_of(inst.bits) : expression(kernel_.program, id));
    }
    for (const Reduced& reduced : walk.reductions) take(reduced);
    for (const size_t k : walk.outputs) {
        const size_t at = kernel_.inputs.size() + k;
        const std::string to =
            is_packed(at) ? cat("p", at, ".at[k]") : cat("out", k, "[e", at, lane_offset(at), "]");
        line(cat(to, " = ", narrowed(kernel_.outputs[k].dtype, cat("v", kernel_.results[k])), ";"));
    }
}

void ElementPrinter::elements(const RowWalk& walk) {
    coordinates("j", first_walked_, kernel_.rank);
    offsets(walk);
    if (has_tail())
        line(cat("const int some = count - j < ", plan_.vector,
                 " ? int(count - j) : ", plan_.vector, ";"));
    packs(walk);
    if (plan_.vector == 1) return lanes(walk);
    text_ += "#pragma unroll\n";
    line(cat("for (int k = 0; k < ", plan_.vector, "; ++k) {"));
    ++depth_;
    if (has_tail()) line("const int c = k < some ? k : 0;");
    lanes(walk);
    --depth_;
    line("}");
    store_packs(walk);
}

}  // namespace megjit::nvrtc
