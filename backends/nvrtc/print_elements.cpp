#include "backends/nvrtc/print_elements.h"

#include "backends/nvrtc/print_scalar.h"
#include "runtime/error.h"

namespace megjit::nvrtc {

using namespace codegen;
using namespace runtime;

ElementPrinter::ElementPrinter(const KernelIR& kernel, const GpuPlan& plan)
    : kernel_(kernel),
      plan_(plan),
      levels_(kernel.levels()),
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

// Instructions whose value differs from element to element and is needed in the pass.
std::vector<bool> ElementPrinter::needed_in(int pass) const {
    std::vector<bool> needed(static_cast<size_t>(kernel_.program.size()), false);
    for (size_t r = 0; r < kernel_.reductions.size(); ++r)
        if (reduces_in(r, pass)) needed[static_cast<size_t>(kernel_.reductions[r].arg)] = true;
    for (size_t k = 0; k < kernel_.outputs.size(); ++k)
        if (stores_in(k, pass)) needed[static_cast<size_t>(kernel_.results[k])] = true;
    for (int id = kernel_.program.size() - 1; id >= 0; --id) {
        const auto at = static_cast<size_t>(id);
        if (is_row_value(id)) needed[at] = false;
        for (int k = 0; needed[at] && k < arity_of(kernel_.program[id].op); ++k)
            needed[static_cast<size_t>(kernel_.program[id].args[k])] = true;
    }
    return needed;
}

std::vector<bool> ElementPrinter::read_inputs(const std::vector<bool>& needed) const {
    std::vector<bool> read(kernel_.inputs.size(), false);
    for (int id = 0; id < kernel_.program.size(); ++id)
        if (const ScalarInst& inst = kernel_.program[id];
            needed[static_cast<size_t>(id)] && inst.op == ScalarOp::input)
            read[inst.bits] = true;
    return read;
}

void ElementPrinter::offsets(const std::vector<bool>& read, int pass) {
    std::vector<bool> used = read;
    for (size_t i = 0; i < kernel_.inputs.size(); ++i)
        if (const int by = kernel_.inputs[i].by; read[i] && by >= 0 && is_walked(by))
            used[static_cast<size_t>(by)] = true;
    for (size_t k = 0; k < kernel_.outputs.size(); ++k) used.push_back(stores_in(k, pass));
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

void ElementPrinter::packs(const std::vector<bool>& read, int pass) {
    for (size_t i = 0; i < kernel_.inputs.size(); ++i) {
        if (!read[i]) continue;
        const int by = kernel_.inputs[i].by;
        if (is_gathered_once(i) && is_walked(by))
            line(cat("const long long t", i, " = in", by, "[e", by, "] * g", i, ";"));
        if (is_packed(i))
            line(cat("const auto p", i, " = load_pack<", plan_.vector, ">(in", i, " + e", i,
                     by >= 0 ? cat(" + t", i) : "", has_tail() ? ", some" : "", ");"));
    }
    for (size_t k = 0; k < kernel_.outputs.size(); ++k)
        if (const size_t at = kernel_.inputs.size() + k; stores_in(k, pass) && is_packed(at))
            line(cat("Pack<", plan_.vector, ", ", storage_name(kernel_.outputs[k].dtype), "> p", at,
                     ";"));
}

void ElementPrinter::store_packs(int pass) {
    for (size_t k = 0; k < kernel_.outputs.size(); ++k)
        if (const size_t at = kernel_.inputs.size() + k; stores_in(k, pass) && is_packed(at))
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

void ElementPrinter::lanes(const std::vector<bool>& needed, int pass) {
    for (int id = 0; id < kernel_.program.size(); ++id) {
        if (!needed[static_cast<size_t>(id)]) continue;
        const ScalarInst& inst = kernel_.program[id];
        value(id,
              inst.op == ScalarOp::input ? element_of(inst.bits) : expression(kernel_.program, id));
    }
    for (size_t r = 0; r < kernel_.reductions.size(); ++r)
        if (reduces_in(r, pass))
            line(cat("a", r, ".add(v", kernel_.reductions[r].arg, ", (int)j",
                     plan_.vector > 1 ? " + k" : "", ");"));
    for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
        if (!stores_in(k, pass)) continue;
        const size_t at = kernel_.inputs.size() + k;
        const std::string to =
            is_packed(at) ? cat("p", at, ".at[k]") : cat("out", k, "[e", at, lane_offset(at), "]");
        line(cat(to, " = ", narrowed(kernel_.outputs[k].dtype, cat("v", kernel_.results[k])), ";"));
    }
}

void ElementPrinter::elements(int pass) {
    const std::vector<bool> needed = needed_in(pass), read = read_inputs(needed);
    coordinates("j", first_walked_, kernel_.rank);
    offsets(read, pass);
    if (has_tail())
        line(cat("const int some = count - j < ", plan_.vector,
                 " ? int(count - j) : ", plan_.vector, ";"));
    packs(read, pass);
    if (plan_.vector == 1) return lanes(needed, pass);
    text_ += "#pragma unroll\n";
    line(cat("for (int k = 0; k < ", plan_.vector, "; ++k) {"));
    ++depth_;
    if (has_tail()) line("const int c = k < some ? k : 0;");
    lanes(needed, pass);
    --depth_;
    line("}");
    store_packs(pass);
}

}  // namespace megjit::nvrtc
