#include "backends/nvrtc/print_kernel.h"

#include <vector>

#include "backends/nvrtc/print_elements.h"
#include "backends/nvrtc/print_scalar.h"
#include "runtime/error.h"

namespace megjit::nvrtc {
namespace {

using namespace codegen;
using namespace runtime;

// The type of a lane of an accumulator, or of a chain.
std::string type_of(const Accumulator& by, bool is_lane) {
    constexpr std::string_view kNames[] = {"Add", "Mul", "Max", "Min", "First<true", "First<false"};
    const std::string_view value = by.type == ScalarType::i32 ? "int"
                                   : by.wide && is_lane       ? "double"
                                                              : "float";
    const std::string_view name = kNames[static_cast<int>(by.join)];
    return by.has_place() ? cat(name, ", ", value, ">") : cat("Value<", name, ", ", value, ">");
}

std::string neutral(const Accumulator& by) {
    const double value = by.neutral();
    if (by.type == ScalarType::i32)
        return value == INT32_MIN ? "-2147483647 - 1" : cat(static_cast<int64_t>(value));
    if (value == value && value - value == 0) return cat(static_cast<int64_t>(value));
    return value < 0 ? "__uint_as_float(0xFF800000u)" : "__uint_as_float(0x7F800000u)";
}

// Words of 4 bytes that a lane takes.
int words_of(const Accumulator& by) { return by.has_place() || by.wide ? 2 : 1; }

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

    void elementwise() {
        const RowWalk& walk = rows_.walks[0];
        row_values(walk);  // constants
        line(cat("const Index count = ", product(0, kernel_.rank), ";"));
        const std::string first = cat("Index(blockIdx.x) * ", plan_.threads, " + threadIdx.x");
        line(
            cat("for (Index j = ", plan_.vector > 1 ? cat("(", first, ") * ", plan_.vector) : first,
                "; j < count; j += Index(gridDim.x) * ", plan_.threads * plan_.vector, ") {"));
        ++depth_;
        elements(walk);
        --depth_;
        line("}");
    }

    void reductions() {
        scratch();
        row();
        line(cat("const Index count = ", product(kernel_.kept(), kernel_.rank), ";"));
        for (const RowWalk& walk : rows_.walks) {
            row_values(walk);
            if (walk.walks()) print_walk(walk);
        }
        row_outputs();
    }

    template <class Visit>
    static void for_each_accumulator(const RowWalk& walk, const Visit& visit) {
        for (const Reduced& reduced : walk.reductions)
            for (size_t n = 0; n < reduced.accumulators.size(); ++n)
                visit(reduced.accumulators[n], cat(reduced.reduction, "_", n));
    }

    // Shared memory for the lanes of one accumulator at a time, of two words at most.
    void scratch() {
        if (is_warp()) return;
        line(cat("__shared__ double scratch[", is_columns() ? plan_.threads : plan_.threads / 32,
                 "];"));
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

    // Values of the row that are known before a walk and were not before.
    void row_values(const RowWalk& walk) {
        for (const int id : walk.row) {
            const ScalarInst& inst = kernel_.program[id];
            if (const int r = reduction_read_by(kernel_, id); r >= 0) value(id, cat("r", r));
            else if (inst.op == ScalarOp::input) value(id, row_input(inst.bits));
            else value(id, expression(kernel_.program, id));
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

    // A thread is a lane; a chain (codegen/row_plan.h) is of what it takes next.
    void print_walk(const RowWalk& walk) {
        const auto declare = [&](const Accumulator& by, const std::string& name, bool is_lane) {
            line(cat(type_of(by, is_lane), is_lane ? " a" : " c", name, " = {", neutral(by),
                     by.has_place() ? ", 0};" : "};"));
        };
        for_each_accumulator(
            walk, [&](const Accumulator& by, const std::string& name) { declare(by, name, true); });
        std::string first =
            plan_.parts > 1 ? cat("Index(blockIdx.y) * ", plan_.team, " + lane") : "lane";
        if (plan_.vector > 1) first = cat("(", first, ") * ", plan_.vector);
        line(cat("for (Index j = ", first,
                 is_columns() ? "; active && j < count;) {" : "; j < count;) {"));
        ++depth_;
        for_each_accumulator(walk, [&](const Accumulator& by, const std::string& name) {
            if (by.chains) declare(by, name, false);
        });
        line(cat("for (int link = 0; link < ", kChain, " && j < count; ++link, j += ",
                 plan_.parts > 1 ? "Index(gridDim.y) * " : "", plan_.team * plan_.vector, ") {"));
        ++depth_;
        elements(walk);
        --depth_;
        line("}");
        for_each_accumulator(walk, [&](const Accumulator& by, const std::string& name) {
            if (by.chains)
                line(by.has_place() ? cat("a", name, ".join(c", name, ");")
                                    : cat("a", name, ".join({c", name, ".value});"));
        });
        --depth_;
        line("}");
        merge(walk);
    }

    void merge(const RowWalk& walk) {
        for_each_accumulator(walk, [&](const Accumulator& by, const std::string& name) {
            line(cat("a", name, " = ", of_team(by, name), ";"));
        });
        if (plan_.parts > 1) merge_parts(walk);
        for (const Reduced& reduced : walk.reductions) {
            const int r = reduced.reduction;
            const bool is_place = reduced.finish == Finish::place;
            const ScalarType type = is_place ? ScalarType::i32 : reduced.accumulators[0].type;
            line(cat("const ", type_name(type), " r", r, " = ", result(reduced), ";"));
        }
    }

    static std::string result(const Reduced& reduced) {
        const std::string a = cat("a", reduced.reduction, "_0.value"),
                          b = cat("a", reduced.reduction, "_1.value");
        switch (reduced.finish) {
            case Finish::value: return a;
            case Finish::place: return cat("a", reduced.reduction, "_0.place");
            case Finish::mean: return cat(a, " / double(count)");
            case Finish::variance: return cat("variance(", a, ", ", b, ", double(count))");
        }
        return "";
    }

    // The lanes of all threads of a team as one.
    std::string of_team(const Accumulator& by, const std::string& name) const {
        if (is_warp()) return cat("over_warp(a", name, ")");
        const std::string type = type_of(by, true);
        const std::string sizes = cat("<", type, ", ", plan_.threads, ">(a", name);
        if (is_columns()) return cat("over_columns", sizes, ", scratch)");
        return cat("over_block", sizes, ", {", neutral(by), by.has_place() ? ", 0" : "",
                   "}, scratch)");
    }

    // Each of the blocks that share a row leaves its part in memory; the last to come merges all,
    // in their order.
    void merge_parts(const RowWalk& walk) {
        const int words = part_words(kernel_);
        line(cat("int* part = parts + (Index(blockIdx.x) * gridDim.y * ", plan_.slots(),
                 " + slot) * ", words, ";"));
        line(cat("const Index stride = ", plan_.slots() * words, ";"));
        int at = 0;
        for_each_accumulator(walk, [&](const Accumulator& by, const std::string& name) {
            line(cat("if (lane == 0) leave_part(part + blockIdx.y * stride + ", at, ", a", name,
                     ");"));
            at += words_of(by);
        });
        line("if (!is_last_block(tickets + blockIdx.x)) return;");
        at = 0;
        for_each_accumulator(walk, [&](const Accumulator& by, const std::string& name) {
            line(cat("a", name, " = all_parts<", type_of(by, true), ">(part + ", at, ", stride);"));
            at += words_of(by);
        });
    }

    void row_outputs() {
        bool is_first = true;
        for (const size_t k : rows_.outputs) {
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
    for (const RowWalk& walk : row_plan_of(kernel).walks)
        for (const Reduced& reduced : walk.reductions)
            for (const Accumulator& by : reduced.accumulators) words += words_of(by);
    return words;
}

std::string print_kernel(const KernelIR& kernel, const GpuPlan& plan, std::string_view entry) {
    return Printer(kernel, plan).run(entry);
}

}  // namespace megjit::nvrtc
