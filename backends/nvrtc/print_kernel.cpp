#include "backends/nvrtc/print_kernel.h"

#include <algorithm>
#include <vector>

#include "backends/nvrtc/print_elements.h"
#include "backends/nvrtc/print_scalar.h"
#include "runtime/error.h"

namespace megjit::nvrtc {
namespace {

using namespace codegen;
using namespace runtime;

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

// Words of 4 bytes that such an accumulator takes.
int accumulator_words(Reduce kind) {
    switch (kind) {
        case Reduce::argmax:
        case Reduce::argmin: return 2;
        case Reduce::variance: return 3;
        default: return 1;
    }
}

class Printer final : ElementPrinter {
public:
    using ElementPrinter::ElementPrinter;

    std::string run(std::string_view entry) {
        signature(entry);
        line(cat("typedef ", plan_.wide ? "long long" : "int", " Index;"));
        line(cat("typedef unsigned ", plan_.wide ? "long long" : "int", " Count;"));
        if (kernel_.reduced) reductions();
        else elementwise();
        return text_ + "}\n";
    }

private:
    bool is_columns() const { return plan_.cover == Cover::columns; }
    bool is_warp() const { return plan_.cover == Cover::rows && plan_.team == 32; }

    void signature(std::string_view entry) {
        std::vector<std::string> parameters;
        for (size_t i = 0; i < memory_inputs(kernel_); ++i)
            parameters.push_back(cat("const ", storage_name(kernel_.inputs[i].dtype), "* in", i));
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            parameters.push_back(cat(storage_name(kernel_.outputs[k].dtype), "* out", k));
        for (int axis = 0; axis < kernel_.rank; ++axis)
            parameters.push_back(cat("long long n", axis));
        for (size_t at = 0; at < operands_; ++at)
            for (int axis = 0; axis < kernel_.rank; ++axis)
                parameters.push_back(cat("long long s", at, "_", axis));
        for (size_t i = 0; i < kernel_.inputs.size(); ++i)
            if (kernel_.inputs[i].by >= 0) parameters.push_back(cat("long long g", i));
        if (plan_.parts > 1)
            parameters.insert(parameters.end(), {"int* parts", "unsigned* tickets"});
        if (parameters.size() > kMaxGpuParameters)
            throw DeviceError(cat("NVRTC: a kernel has ", parameters.size(),
                                  " parameters; a GPU takes ", kMaxGpuParameters));
        text_ =
            cat("extern \"C\" __global__ void __launch_bounds__(", plan_.threads, ") ", entry, "(");
        for (size_t p = 0; p < parameters.size(); ++p) text_ += (p ? ", " : "") + parameters[p];
        text_ += ") {\n";
    }

    void loop(const std::string& header, int pass) {
        line(header);
        ++depth_;
        elements(pass);
        --depth_;
        line("}");
    }

    void elementwise() {
        for (int id = 0; id < kernel_.program.size(); ++id)
            if (is_row_value(id)) value(id, expression(kernel_.program, id));  // constants
        line(cat("const Index count = ", product(0, kernel_.rank), ";"));
        const std::string first = cat("Index(blockIdx.x) * ", plan_.threads, " + threadIdx.x");
        loop(
            cat("for (Index j = ", plan_.vector > 1 ? cat("(", first, ") * ", plan_.vector) : first,
                "; j < count; j += Index(gridDim.x) * ", plan_.threads * plan_.vector, ") {"),
            0);
    }

    void reductions() {
        scratch();
        row();
        row_values(0);
        line(cat("const Index count = ", product(kernel_.kept(), kernel_.rank), ";"));
        for (int pass = 0; pass < kernel_.passes(); ++pass) {
            walk(pass);
            row_values(pass + 1);
        }
        row_outputs();
    }

    // Shared memory for the parts of one reduction at a time.
    void scratch() {
        if (is_warp()) return;
        int words = 1;
        for (const Reduction& reduction : kernel_.reductions)
            words = std::max(words, accumulator_words(reduction.kind));
        line(cat("__shared__ int scratch[",
                 words * (is_columns() ? plan_.threads : plan_.threads / 32), "];"));
    }

    void row() {
        const int slots = plan_.slots(), kept = kernel_.kept();
        if (is_columns()) {
            line(cat("const int slot = threadIdx.x % ", slots, ", lane = threadIdx.x / ", slots,
                     ";"));
            line(cat("const Index blocks = (Index(n", kept - 1, ") + ", slots - 1, ") / ", slots,
                     ";"));
            line(cat("const Index i", kept - 1, " = Index(blockIdx.x) % blocks * ", slots,
                     " + slot;"));
            line(cat("const bool active = i", kept - 1, " < Index(n", kept - 1, ");"));
            coordinates("Index(blockIdx.x) / blocks", 0, kept - 1);
        } else {
            line(cat("const int slot = threadIdx.x / ", plan_.team, ", lane = threadIdx.x % ",
                     plan_.team, ";"));
            line(cat("const Index row = Index(blockIdx.x) * ", slots, " + slot;"));
            if (slots > 1)
                line(cat("if (row >= ", product(0, kept),
                         ") return;"));  // a whole warp, and no others wait for it
            coordinates("row", 0, kept);
        }
        for (size_t at = 0; at < operands_; ++at)
            line(cat("const Index o", at, " = ", offset("", at, 0, kept), ";"));
        for (size_t i = 0; i < kernel_.inputs.size(); ++i)
            if (const int by = kernel_.inputs[i].by; by >= 0 && !is_walked(by))
                line(cat("const long long t", i, " = ",
                         guarded(cat("in", by, "[o", by, "] * g", i)), ";"));
    }

    // Columns behind the last one have no memory.
    std::string guarded(const std::string& load) const {
        return is_columns() ? cat("active ? ", load, " : 0") : load;
    }

    // Values of the row that are known before pass `pass` and were not before.
    void row_values(int pass) {
        for (int id = 0; id < kernel_.program.size(); ++id) {
            if (!is_row_value(id) || pass_of(id) != pass) continue;
            const ScalarInst& inst = kernel_.program[id];
            if (inst.op != ScalarOp::input) value(id, expression(kernel_.program, id));
            else if (inst.bits >= kernel_.inputs.size())
                value(id, cat("r", inst.bits - kernel_.inputs.size()));
            else value(id, row_input(inst.bits));
        }
    }

    std::string row_input(size_t i) const {
        const Operand& input = kernel_.inputs[i];
        if (input.is_offset) return cat("(int)o", i);
        return widened(
            input.dtype,
            cat("(", guarded(cat("in", i, "[o", i, input.by >= 0 ? cat(" + t", i) : "", "]")),
                ")"));
    }

    void walk(int pass) {
        for (size_t r = 0; r < kernel_.reductions.size(); ++r)
            if (reduces_in(r, pass))
                line(cat(accumulator(kernel_, kernel_.reductions[r]), " a", r, ";"));
        std::string first =
            plan_.parts > 1 ? cat("Index(blockIdx.y) * ", plan_.team, " + lane") : "lane";
        if (plan_.vector > 1) first = cat("(", first, ") * ", plan_.vector);
        loop(cat("for (Index j = ", first, "; ", is_columns() ? "active && " : "",
                 "j < count; j += ", plan_.parts > 1 ? "Index(gridDim.y) * " : "",
                 plan_.team * plan_.vector, ") {"),
             pass);
        for (size_t r = 0; r < kernel_.reductions.size(); ++r)
            if (reduces_in(r, pass)) line(cat("a", r, " = ", of_team(r), ";"));
        if (plan_.parts > 1) merge_parts();
        for (size_t r = 0; r < kernel_.reductions.size(); ++r)
            if (reduces_in(r, pass))
                line(cat("const ", type_name(kernel_.type_of(kernel_.reductions[r])), " r", r,
                         " = a", r, ".result((float)count);"));
    }

    // The accumulators of all threads of a team as one.
    std::string of_team(size_t r) const {
        if (is_warp()) return cat("over_warp(a", r, ")");
        return cat(is_columns() ? "over_columns<" : "over_block<",
                   accumulator(kernel_, kernel_.reductions[r]), ", ", plan_.threads, ">(a", r,
                   ", scratch)");
    }

    // Each of the blocks that share a row leaves its part in memory; the last to come merges all,
    // in their order.
    void merge_parts() {
        const int words = part_words(kernel_);
        line(cat("int* part = parts + (Index(blockIdx.x) * gridDim.y * ", plan_.slots(),
                 " + slot) * ", words, ";"));
        line(cat("const Index stride = ", plan_.slots() * words, ";"));
        int at = 0;
        for (size_t r = 0; r < kernel_.reductions.size();
             at += accumulator_words(kernel_.reductions[r++].kind))
            line(
                cat("if (lane == 0) leave_part(part + blockIdx.y * stride + ", at, ", a", r, ");"));
        line("if (!is_last_block(tickets + blockIdx.x)) return;");
        at = 0;
        for (size_t r = 0; r < kernel_.reductions.size();
             at += accumulator_words(kernel_.reductions[r++].kind))
            line(cat("a", r, " = all_parts<", accumulator(kernel_, kernel_.reductions[r]),
                     ">(part + ", at, ", stride);"));
    }

    void row_outputs() {
        bool is_first = true;
        for (size_t k = 0; k < kernel_.outputs.size(); ++k) {
            if (!kernel_.outputs[k].per_row) continue;
            // An output may lie on an input of the row, which all threads have read by then.
            if (std::exchange(is_first, false))
                line(is_warp() ? "__syncwarp();" : "__syncthreads();");
            line(cat("if (lane == 0", is_columns() ? " && active" : "", ") out", k, "[o",
                     kernel_.inputs.size() + k, "] = ",
                     narrowed(kernel_.outputs[k].dtype, cat("v", kernel_.results[k])), ";"));
        }
    }
};

}  // namespace

std::string_view prelude() {
    static constexpr char kText[] =
#include "backends/nvrtc/prelude.inl"
        ;
    return kText;
}

int part_words(const KernelIR& kernel) {
    int words = 0;
    for (const Reduction& reduction : kernel.reductions) words += accumulator_words(reduction.kind);
    return words;
}

std::string print_kernel(const KernelIR& kernel, const GpuPlan& plan, std::string_view entry) {
    return Printer(kernel, plan).run(entry);
}

}  // namespace megjit::nvrtc
