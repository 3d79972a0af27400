#include "backends/nvrtc/print_kernel.h"

#include <algorithm>
#include <vector>

#include "backends/nvrtc/print_scalar.h"
#include "runtime/error.h"

namespace megjit::nvrtc {
namespace {

using namespace codegen;
using namespace runtime;
using Level = KernelIR::Level;

std::string accumulator(const KernelIR& kernel, const Reduction& reduction) {
    const ScalarType type = kernel.program[reduction.arg].type;
    const bool is_float = type == ScalarType::f32;
    switch (reduction.kind) {
        case Reduce::sum: return is_float ? "Sum" : "SumI";
        case Reduce::prod: return is_float ? "Prod" : "ProdI";
        case Reduce::max: return is_float ? "Max" : type == ScalarType::i32 ? "MaxI" : "Any";
        case Reduce::min: return is_float ? "Min" : type == ScalarType::i32 ? "MinI" : "All";
        case Reduce::argmax: return is_float ? "Arg<float, true>" : "Arg<int, true>";
        case Reduce::argmin: return is_float ? "Arg<float, false>" : "Arg<int, false>";
        case Reduce::mean: return "Mean";
        case Reduce::variance: return "Variance";
    }
    return "";
}

int accumulator_words(Reduce kind) {
    switch (kind) {
        case Reduce::argmax: case Reduce::argmin: return 2;
        case Reduce::variance: return 3;
        default: return 1;
    }
}

// Names in the text: inK, outK addresses; nA extents; sO_A strides of operand O; gI gather strides; iA
// coordinates; oO, eO offsets of a row and of an element; tI gathered offsets; pO packs; vID values of the
// program; rR reductions.
class Printer {
public:
    Printer(const KernelIR& kernel, const Plan& plan)
        : kernel_(kernel), plan_(plan), levels_(kernel.levels()), operands_(kernel.inputs.size() + kernel.outputs.size()),
          first_walked_(kernel.reduced ? kernel.kept() : 0) {}

    std::string run(std::string_view entry) {
        signature(entry);
        line(cat("typedef ", plan_.wide ? "long long" : "int", " Index;"));
        line(cat("typedef unsigned ", plan_.wide ? "long long" : "int", " Count;"));
        if (kernel_.reduced) {
            scratch();
            row();
            row_values(0);
        } else {
            constants();
        }
        line(cat("const Index count = ", product(first_walked_, kernel_.rank), ";"));
        const int passes = kernel_.reduced ? kernel_.passes() : 1;
        for (int pass = 0; pass < passes; ++pass) {
            walk(pass);
            if (kernel_.reduced) row_values(pass + 1);
        }
        if (kernel_.reduced) row_outputs();
        return text_ + "}\n";
    }

private:
    void line(const std::string& text) { text_.append(static_cast<size_t>(4 * depth_), ' ').append(text) += '\n'; }

    bool is_memory(size_t at) const { return !operand(kernel_, at).is_offset; }
    bool is_packed(size_t at) const { return plan_.vector > 1 && nvrtc::is_packed(kernel_, at); }
    bool is_warp() const { return plan_.cover == Cover::rows && plan_.team == 32; }
    bool has_tail() const { return plan_.vector > 1 && kernel_.reduced == 0 && kernel_.rank == 1; }
    std::string name(size_t at) const { return is_output(kernel_, at) ? cat("out", at - kernel_.inputs.size()) : cat("in", at); }
    // Walked once an element (at a pass), as opposed to once a row.
    bool is_walked(size_t at) const { return !operand(kernel_, at).per_row; }

    void signature(std::string_view entry) {
        std::vector<std::string> parameters;
        for (size_t at = 0; at < operands_; ++at)
            if (is_memory(at)) parameters.push_back(cat(is_output(kernel_, at) ? "" : "const ", storage_name(operand(kernel_, at).dtype), "* ", name(at)));
        for (int axis = 0; axis < kernel_.rank; ++axis) parameters.push_back(cat("long long n", axis));
        for (size_t at = 0; at < operands_; ++at)
            for (int axis = 0; axis < kernel_.rank; ++axis) parameters.push_back(cat("long long s", at, "_", axis));
        for (size_t i = 0; i < kernel_.inputs.size(); ++i)
            if (kernel_.inputs[i].by >= 0) parameters.push_back(cat("long long g", i));
        if (parameters.size() > kMaxGpuParameters)
            throw DeviceError(cat("NVRTC: a kernel has ", parameters.size(), " parameters; a GPU takes ", kMaxGpuParameters));
        text_ = cat("extern \"C\" __global__ void __launch_bounds__(", plan_.threads, ") ", entry, "(");
        for (size_t p = 0; p < parameters.size(); ++p) text_ += (p ? ", " : "") + parameters[p];
        text_ += ") {\n";
    }

    std::string product(int first, int last) const {
        std::string text;
        for (int axis = first; axis < last; ++axis) text += cat(axis > first ? " * " : "", "Index(n", axis, ")");
        return text.empty() ? "1" : text;
    }

    // How far operand `at` moves with axis `axis`: "" where it does not.
    std::string term(size_t at, int axis) const {
        const Operand& it = operand(kernel_, at);
        if (it.per_row && axis >= kernel_.kept()) return "";
        const bool is_row_major = kernel_.reduced == 0 && is_output(kernel_, at);
        if (axis == kernel_.lane_axis() && !is_row_major) {
            if (it.inner == Inner::contiguous) return cat(" + i", axis);
            if (it.inner == Inner::broadcast) return "";
        }
        return cat(" + i", axis, " * Index(s", at, "_", axis, ")");
    }

    // Coordinates of `linear` in axes [first, last).
    void coordinates(const std::string& linear, int first, int last) {
        if (first == last) return;
        if (last - first > 1) line(cat("Count rest", first, " = ", linear, ";"));
        for (int axis = last - 1; axis > first; --axis) {
            line(cat("const Index i", axis, " = rest", first, " % Count(n", axis, ");"));
            line(cat("rest", first, " /= Count(n", axis, ");"));
        }
        line(cat("const Index i", first, " = ", last - first > 1 ? cat("rest", first) : linear, ";"));
    }

    // ---- a row: what its threads share

    void row() {
        const int slots = plan_.slots(), kept = kernel_.kept();
        if (plan_.cover == Cover::columns) {
            line(cat("const int slot = threadIdx.x % ", slots, ", lane = threadIdx.x / ", slots, ";"));
            line(cat("const Index blocks = (Index(n", kept - 1, ") + ", slots - 1, ") / ", slots, ";"));
            line(cat("const Index i", kept - 1, " = Index(blockIdx.x) % blocks * ", slots, " + slot;"));
            line(cat("const bool active = i", kept - 1, " < Index(n", kept - 1, ");"));
            if (kept > 1) coordinates("Index(blockIdx.x) / blocks", 0, kept - 1);
        } else {
            line(cat("const int lane = threadIdx.x % ", plan_.team, ";"));
            line(cat("const Index row = Index(blockIdx.x) * ", slots, " + threadIdx.x / ", plan_.team, ";"));
            if (slots > 1) line(cat("if (row >= ", product(0, kept), ") return;"));  // a whole warp, and no others wait for it
            coordinates("row", 0, kept);
        }
        for (size_t at = 0; at < operands_; ++at) {
            std::string offset = "0";
            for (int axis = 0; axis < kept; ++axis) offset += term(at, axis);
            line(cat("const Index o", at, " = ", offset, ";"));
        }
        for (size_t i = 0; i < kernel_.inputs.size(); ++i)
            if (const int by = kernel_.inputs[i].by; by >= 0 && !is_walked(static_cast<size_t>(by)))
                line(cat("const long long t", i, " = ", guarded(cat("in", by, "[o", by, "] * g", i)), ";"));
    }

    // Shared memory for the parts of one reduction at a time.
    void scratch() {
        if (is_warp()) return;
        int words = 1;
        for (const Reduction& reduction : kernel_.reductions) words = std::max(words, accumulator_words(reduction.kind));
        line(cat("__shared__ int scratch[", words * (plan_.cover == Cover::columns ? plan_.threads : plan_.threads / 32), "];"));
    }

    // Columns behind the last one have no memory.
    std::string guarded(const std::string& load) const { return plan_.cover == Cover::columns ? cat("active ? ", load, " : 0") : load; }

    void constants() {
        for (int id = 0; id < kernel_.program.size(); ++id)
            if (levels_[static_cast<size_t>(id)].per_row) value(id, expression(kernel_.program, id));
    }

    // Values of the row that are known before pass `pass` and were not before.
    void row_values(int pass) {
        for (int id = 0; id < kernel_.program.size(); ++id) {
            const Level level = levels_[static_cast<size_t>(id)];
            if (!level.per_row || level.pass != pass) continue;
            const ScalarInst& inst = kernel_.program[id];
            if (inst.op != ScalarOp::input) {
                value(id, expression(kernel_.program, id));
            } else if (inst.bits >= kernel_.inputs.size()) {
                value(id, cat("r", inst.bits - kernel_.inputs.size()));
            } else {
                const size_t i = inst.bits;
                const Operand& input = kernel_.inputs[i];
                if (input.is_offset) value(id, cat("(int)o", i));
                else value(id, widened(input.dtype, cat("(", guarded(cat("in", i, "[o", i, input.by >= 0 ? cat(" + t", i) : "", "]")), ")")));
            }
        }
    }

    void row_outputs() {
        std::string condition;
        for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
            if (!kernel_.outputs[k].per_row) continue;
            if (condition.empty()) {
                // An output may lie on an input of the row, which all threads have read by now.
                line(is_warp() ? "__syncwarp();" : "__syncthreads();");
                condition = plan_.cover == Cover::columns ? "if (lane == 0 && active) " : "if (lane == 0) ";
            }
            line(cat(condition, "out", k, "[o", kernel_.inputs.size() + k, "] = ", narrowed(kernel_.outputs[k].dtype, cat("v", kernel_.results[k])), ";"));
        }
    }

    // ---- the elements of a row, or of everything

    void value(int id, const std::string& text) { line(cat("const ", type_name(kernel_.program[id].type), " v", id, " = ", text, ";")); }

    bool reduces_in(size_t r, int pass) const { return levels_[static_cast<size_t>(kernel_.reductions[r].arg)].pass == pass; }
    bool stores_in(size_t k, int pass) const { return !kernel_.outputs[k].per_row && levels_[static_cast<size_t>(kernel_.results[k])].pass == pass; }

    // Instructions whose value differs from element to element and is needed in the pass.
    std::vector<bool> needed_in(int pass) const {
        std::vector<bool> needed(static_cast<size_t>(kernel_.program.size()), false);
        for (size_t r = 0; r < kernel_.reductions.size(); ++r)
            if (reduces_in(r, pass)) needed[static_cast<size_t>(kernel_.reductions[r].arg)] = true;
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            if (stores_in(k, pass)) needed[static_cast<size_t>(kernel_.results[k])] = true;
        for (int id = kernel_.program.size() - 1; id >= 0; --id) {
            const auto at = static_cast<size_t>(id);
            if (levels_[at].per_row) needed[at] = false;
            for (int k = 0; needed[at] && k < arity_of(kernel_.program[id].op); ++k) needed[static_cast<size_t>(kernel_.program[id].args[k])] = true;
        }
        return needed;
    }

    void walk(int pass) {
        for (size_t r = 0; r < kernel_.reductions.size(); ++r)
            if (reduces_in(r, pass)) line(cat(accumulator(kernel_, kernel_.reductions[r]), " a", r, ";"));
        const int vector = plan_.vector;
        if (kernel_.reduced) {
            const char* condition = plan_.cover == Cover::columns ? "active && j < count" : "j < count";
            line(cat("for (Index j = lane", vector > 1 ? cat(" * ", vector) : "", "; ", condition, "; j += ", plan_.team * vector, ") {"));
        } else {
            line(cat("for (Index j = (Index(blockIdx.x) * ", plan_.threads, " + threadIdx.x) * ", vector, "; j < count; j += Index(gridDim.x) * ",
                     plan_.threads * vector, ") {"));
        }
        ++depth_;
        elements(pass);
        --depth_;
        line("}");
        for (size_t r = 0; r < kernel_.reductions.size(); ++r)
            if (reduces_in(r, pass)) combine(r);
    }

    void combine(size_t r) {
        const std::string kind = accumulator(kernel_, kernel_.reductions[r]);
        const std::string part = cat("a", r);
        const std::string whole = is_warp() ? cat("over_warp(", part, ")")
                                            : cat(plan_.cover == Cover::columns ? "over_columns<" : "over_block<", kind, ", ", plan_.threads, ">(", part, ", scratch)");
        line(cat("const ", type_name(kernel_.type_of(kernel_.reductions[r])), " r", r, " = ", whole, ".result((float)count);"));
    }

    // Elements j .. j + vector - 1, which are neighbours on the last axis.
    void elements(int pass) {
        const std::vector<bool> needed = needed_in(pass);
        coordinates("j", first_walked_, kernel_.rank);
        offsets(needed, pass);
        const std::string count = has_tail() ? ", some" : "";
        if (has_tail()) line(cat("const int some = count - j < ", plan_.vector, " ? int(count - j) : ", plan_.vector, ";"));
        packs(needed, pass, count);
        if (plan_.vector > 1) {
            text_ += "#pragma unroll\n";
            line(cat("for (int k = 0; k < ", plan_.vector, "; ++k) {"));
            ++depth_;
            if (has_tail()) line("const int c = k < some ? k : 0;");
        }
        lanes(needed, pass);
        if (plan_.vector > 1) {
            --depth_;
            line("}");
        }
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            if (const size_t at = kernel_.inputs.size() + k; stores_in(k, pass) && is_packed(at))
                line(cat("store_pack(out", k, " + e", at, ", p", at, count, ");"));
    }

    // Inputs that an element reads in this pass.
    std::vector<bool> read_inputs(const std::vector<bool>& needed) const {
        std::vector<bool> read(kernel_.inputs.size(), false);
        for (int id = 0; id < kernel_.program.size(); ++id) {
            const ScalarInst& inst = kernel_.program[id];
            if (!needed[static_cast<size_t>(id)] || inst.op != ScalarOp::input) continue;
            read[inst.bits] = true;
        }
        return read;
    }

    void offsets(const std::vector<bool>& needed, int pass) {
        std::vector<bool> used = read_inputs(needed);
        for (size_t i = 0; i < kernel_.inputs.size(); ++i)
            if (const int by = kernel_.inputs[i].by; used[i] && by >= 0 && is_walked(static_cast<size_t>(by))) used[static_cast<size_t>(by)] = true;
        for (size_t k = 0; k < kernel_.outputs.size(); ++k) used.push_back(stores_in(k, pass));
        for (size_t at = 0; at < operands_; ++at) {
            if (!used[at]) continue;
            std::string offset = kernel_.reduced ? cat("o", at) : "0";
            for (int axis = first_walked_; axis < kernel_.rank; ++axis) offset += term(at, axis);
            if (kernel_.reduced == 0 && is_output(kernel_, at)) offset = "j";
            line(cat("const Index e", at, " = ", offset, ";"));
        }
    }

    // Is the index by which input i is gathered the same for neighbours on the lane axis?
    bool is_gathered_once(size_t i) const {
        const int by = kernel_.inputs[i].by;
        return by >= 0 && (!is_walked(static_cast<size_t>(by)) || kernel_.inputs[static_cast<size_t>(by)].inner == Inner::broadcast);
    }

    void packs(const std::vector<bool>& needed, int pass, const std::string& count) {
        const std::vector<bool> read = read_inputs(needed);
        for (size_t i = 0; i < kernel_.inputs.size(); ++i) {
            if (!read[i]) continue;
            const int by = kernel_.inputs[i].by;
            if (is_gathered_once(i) && is_walked(static_cast<size_t>(by))) line(cat("const long long t", i, " = in", by, "[e", by, "] * g", i, ";"));
            if (is_packed(i)) line(cat("const auto p", i, " = load_pack<", plan_.vector, ">(in", i, " + e", i, by >= 0 ? cat(" + t", i) : "", count, ");"));
        }
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            if (const size_t at = kernel_.inputs.size() + k; stores_in(k, pass) && is_packed(at))
                line(cat("Pack<", plan_.vector, ", ", storage_name(kernel_.outputs[k].dtype), "> p", at, ";"));
    }

    // The offset of lane k from lane 0 of operand `at`.
    std::string lane_offset(size_t at) const {
        if (plan_.vector == 1) return "";
        const char* lane = has_tail() ? "c" : "k";
        switch (operand(kernel_, at).inner) {
            case Inner::contiguous: return cat(" + ", lane);
            case Inner::broadcast: return "";
            case Inner::strided: return cat(" + ", lane, " * Index(s", at, "_", kernel_.rank - 1, ")");
        }
        return "";
    }

    std::string element_of(size_t i) const {
        const Operand& input = kernel_.inputs[i];
        const std::string place = cat("e", i, lane_offset(i));
        if (input.is_offset) return cat("(int)(", place, ")");
        if (is_packed(i)) return widened(input.dtype, cat("p", i, ".at[k]"));
        std::string gathered;
        if (is_gathered_once(i)) gathered = cat(" + t", i);
        else if (input.by >= 0) gathered = cat(" + in", input.by, "[e", input.by, lane_offset(static_cast<size_t>(input.by)), "] * g", i);
        return widened(input.dtype, cat("in", i, "[", place, gathered, "]"));
    }

    void lanes(const std::vector<bool>& needed, int pass) {
        for (int id = 0; id < kernel_.program.size(); ++id) {
            if (!needed[static_cast<size_t>(id)]) continue;
            const ScalarInst& inst = kernel_.program[id];
            value(id, inst.op == ScalarOp::input ? element_of(inst.bits) : expression(kernel_.program, id));
        }
        for (size_t r = 0; r < kernel_.reductions.size(); ++r)
            if (reduces_in(r, pass)) line(cat("a", r, ".add(v", kernel_.reductions[r].arg, ", (int)j", plan_.vector > 1 ? " + k" : "", ");"));
        for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
            if (!stores_in(k, pass)) continue;
            const size_t at = kernel_.inputs.size() + k;
            const std::string to = is_packed(at) ? cat("p", at, ".at[k]") : cat("out", k, "[e", at, lane_offset(at), "]");
            line(cat(to, " = ", narrowed(kernel_.outputs[k].dtype, cat("v", kernel_.results[k])), ";"));
        }
    }

    const KernelIR& kernel_;
    const Plan& plan_;
    const std::vector<Level> levels_;
    const size_t operands_;
    const int first_walked_;  // the axes from here on are walked by a loop; those before are a row's
    std::string text_;
    int depth_ = 1;
};

}  // namespace

std::string_view prelude() {
    static constexpr char kText[] =
#include "backends/nvrtc/prelude.inl"
        ;
    return kText;
}

std::string print_kernel(const KernelIR& kernel, const Plan& plan, std::string_view entry) { return Printer(kernel, plan).run(entry); }

}  // namespace megjit::nvrtc
