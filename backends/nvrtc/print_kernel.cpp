// Prints one statement for each instruction of codegen's loops. Values are named v and their
// number; vectors are Packs, and loops that the compiler unrolls work on their lanes.
#include "backends/nvrtc/print_kernel.h"

#include <vector>

#include "backends/nvrtc/print_scalar.h"
#include "runtime/host/error.h"

namespace megjit::nvrtc {
namespace {

using namespace codegen::loops;
using codegen::GpuPlan;
using codegen::KernelIR;
using runtime::cat;

class Printer {
public:
    explicit Printer(const Function& function)
        : function_(function), aliases_(function.values.size()) {
        // Numbers are long long, whatever type the code counts with.
        for (const int id : function.parameters)
            if (type_of(id) == Type{}) alias(id, cat("Index(v", id, ")"));
    }

    std::string run(const GpuPlan& plan, std::string_view entry) {
        std::string parameters;
        for (const int id : function_.parameters)
            parameters +=
                cat(parameters.empty() ? "" : ", ", parameter_type(type_of(id)), " v", id);
        if (function_.table_words)
            parameters = cat("__grid_constant__ const Words<", function_.table_words, "> table");
        const std::string blocks = plan.least_blocks() ? cat(", ", plan.least_blocks()) : "";
        text_ = cat("extern \"C\" __global__ void __launch_bounds__(", plan.threads, blocks, ") ",
                    entry, "(", parameters, ") {\n");
        line(cat("typedef ", plan.wide ? "long long" : "int", " Index;"));
        line(cat("typedef unsigned ", plan.wide ? "long long" : "int", " Count;"));
        line("typedef unsigned long long Natural;");
        for (const Function::Room& room : function_.rooms)
            line(cat(room.is_shared ? "__shared__ " : "",
                     room.lanes > 1 ? cat("__align__(", bytes_of_vector(room), ") ") : "",
                     name_of(type_of(room.value).kind), " v", room.value, "[", room.elements,
                     "];"));
        print_block(function_.body);
        return text_ + "}\n";
    }

private:
    const Type& type_of(int id) const { return function_.type_of(id); }
    int bytes_of_vector(const Function::Room& room) const {
        return room.lanes * bytes_of(type_of(room.value).kind);
    }
    std::string type_name(int id) const {
        const Type& type = type_of(id);
        if (type.is_pointer) return cat(name_of(type.kind), "*");
        return type.lanes > 1 ? cat("Pack<", type.lanes, ", ", name_of(type.kind), ">")
                              : std::string(name_of(type.kind));
    }
    // Parameters are words of 8 bytes.
    static std::string parameter_type(const Type& type) {
        return type.is_pointer ? cat(name_of(type.kind), "*") : "long long";
    }

    static std::string indented(int depth, const std::string& text) {
        return std::string(static_cast<size_t>(4 * depth), ' ').append(text) += '\n';
    }
    void line(const std::string& text) { text_ += indented(depth_, text); }

    // ---- values ----
    // In lane k of a vector.
    std::string value(int id) const {
        const Function::Known& known = function_.values[static_cast<size_t>(id)];
        if (known.is_constant) return literal(known.type.kind, known.bits);
        if (const std::string& alias = aliases_[static_cast<size_t>(id)]; !alias.empty())
            return alias;
        return cat("v", id, known.type.lanes > 1 ? ".at[k]" : "");
    }
    // Prints a value with all its lanes; a value without a name gets one.
    std::string whole(int id) {
        const Function::Known& known = function_.values[static_cast<size_t>(id)];
        if (known.type.lanes == 1) return value(id);
        if (known.is_constant || !aliases_[static_cast<size_t>(id)].empty()) {
            const std::string name = cat("w", names_++);
            close_lanes();
            open_lanes(cat(type_name(id), " ", name, ";"), known.type.lanes);
            line(cat(name, ".at[k] = ", value(id), ";"));
            close_lanes();
            return name;
        }
        close_lanes();
        return cat("v", id);
    }

    // ---- lanes: statements for each k, in one loop as long as nothing else comes between ----
    void open_lanes(const std::string& declaration, int lanes) {
        if (in_lanes_ && lanes != lanes_) close_lanes();
        if (!in_lanes_) {
            in_lanes_ = true;
            lanes_ = lanes;
            lanes_start_ = text_.size();
            ++depth_;
        }
        if (!declaration.empty()) declarations_ += indented(depth_ - 1, declaration);
    }
    void close_lanes() {
        if (!in_lanes_) return;
        in_lanes_ = false;
        --depth_;
        const std::string body = text_.substr(lanes_start_);
        text_.resize(lanes_start_);
        text_ += std::exchange(declarations_, {}) + "#pragma unroll\n";
        line(cat("for (int k = 0; k < ", lanes_, "; ++k) {"));
        text_ += body;
        line("}");
    }
    void define(int id, const std::string& text) {
        const int lanes = type_of(id).lanes;
        if (lanes == 1) {
            close_lanes();
            return line(cat("const ", type_name(id), " v", id, " = ", text, ";"));
        }
        open_lanes(cat(type_name(id), " v", id, ";"), lanes);
        line(cat("v", id, ".at[k] = ", text, ";"));
    }
    void alias(int id, const std::string& text) { aliases_[static_cast<size_t>(id)] = text; }

    // ---- instructions ----
    void print_block(const Block& block) {
        for (const Inst& inst : block.insts) print_inst(inst);
        close_lanes();
    }

    void print_inst(const Inst& inst) {
        const auto arg = [&](size_t n) { return value(inst.args[n]); };
        const auto number = inst.number;
        switch (inst.op) {
            case Op::loop: return print_loop(inst);
            case Op::choose: return print_choose(inst);
            case Op::store: return print_store(inst);
            case Op::scatter:
                return print_element_store(inst, type_of(inst.args[2]).lanes,
                                           cat(arg(0), "[", arg(1), "]"), 2);
            case Op::barrier:
                close_lanes();
                return line(number ? "__syncwarp();" : "__syncthreads();");
            case Op::publish: close_lanes(); return line("__threadfence();");
            case Op::at: return print_pointer(inst);
            default: break;
        }
        const int id = inst.results[0];
        const Kind kind = type_of(id).kind;
        switch (inst.op) {
            case Op::compute: {
                std::string v[3];
                for (size_t n = 0; n < inst.args.size(); ++n) v[n] = arg(n);
                return define(id, expression(inst.compute, type_of(inst.args[0]).kind, v));
            }
            case Op::convert: return define(id, cat("(", name_of(kind), ")", arg(0)));
            case Op::bits: return define(id, bits_as(kind, arg(0)));
            case Op::fence:
            case Op::splat: return alias(id, arg(0));
            case Op::widen: return define(id, widened(inst.dtype, arg(0)));
            case Op::shorten: return define(id, narrowed(inst.dtype, arg(0)));
            case Op::lanes: return alias(id, cat("(", name_of(kind), ")k"));
            case Op::lane: return alias(id, lane_of(inst.args[0], number));
            case Op::load: return print_load(inst);
            case Op::gather: return define(id, cat(arg(0), "[", arg(1), "]"));
            case Op::word: return print_word(id, arg(0));
            case Op::thread: return define(id, thread(static_cast<Where>(number)));
            case Op::from_thread:
                return define(id, cat("__shfl_xor_sync(0xFFFFFFFFu, ", arg(0), ", ", number, ")"));
            case Op::multiply: return print_multiply(inst);
            case Op::count: return define(id, cat("atomicAdd(", arg(0), ", 1)"));
            default:
                throw runtime::InternalError(cat("NVRTC: ", name_of(inst.op), " is not printed"));
        }
    }

    void print_multiply(const Inst& inst) {
        const int id = inst.results[0];
        const std::string halves = inst.dtype == runtime::DType::f16 ? "f16" : "bf16",
                          from = whole(inst.args[6]);
        line(cat(type_name(id), " v", id, " = ", from, ";"));
        std::string sums, words;
        for (int n = 0; n < 4; ++n) sums += cat(n ? ", " : "", "\"+f\"(v", id, ".at[", n, "])");
        for (size_t n = 0; n < 6; ++n)
            words += cat(n ? ", " : "", "\"r\"(", value(inst.args[n]), ")");
        line(cat("asm(\"mma.sync.aligned.m16n8k16.row.col.f32.", halves, ".", halves,
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\" : ", sums,
                 " : ", words, ");"));
    }

    // Prints what value() does, with the lane's number for its k: "v3.at[k]", or "(int)k".
    std::string lane_of(int id, int64_t number) {
        std::string text = value(id);
        if (text.ends_with(".at[k]")) text.replace(text.size() - 2, 1, cat(number));
        else if (text.ends_with(")k")) text.replace(text.size() - 1, 1, cat(number));
        return text;
    }

    void print_pointer(const Inst& inst) {
        close_lanes();
        const int id = inst.results[0];
        line(cat(type_name(id), " const v", id, " = ", value(inst.args[0]), " + ",
                 value(inst.args[1]), ";"));
    }

    void print_word(int id, const std::string& number) {
        close_lanes();
        const std::string type = type_name(id);
        line(cat(type, " const v", id, " = (", type, ")table.at[", number, "];"));
    }

    void print_load(const Inst& inst) {
        const int id = inst.results[0];
        const int lanes = type_of(id).lanes;
        const std::string from = value(inst.args[0]);
        if (inst.args.size() > 1)
            return define(id, cat(value(inst.args[1]), " ? ", from,
                                  "[k] : ", name_of(type_of(id).kind) == "float" ? "0.0f" : "0"));
        if (lanes == 1) {
            const bool is_volatile = inst.number & kOfOthers;
            return define(id, is_volatile
                                  ? cat("*(volatile ", name_of(type_of(id).kind), "*)", from)
                                  : cat("*", from));
        }
        close_lanes();
        line(cat("const ", type_name(id), " v", id, " = load_pack<", lanes, ">(", from, ");"));
    }

    void print_store(const Inst& inst) {
        const int lanes = type_of(inst.args[1]).lanes;
        const std::string to = value(inst.args[0]);
        if (lanes > 1 && inst.args.size() == 2) {
            const std::string from = whole(inst.args[1]);
            return line(cat("store_pack(", to, ", ", from, ");"));
        }
        print_element_store(inst, lanes, lanes > 1 ? cat(to, "[k]") : cat("*", to), 1);
    }
    // Stores lane by lane: argument `from` goes where the mask after it is on.
    void print_element_store(const Inst& inst, int lanes, const std::string& to, size_t from) {
        if (lanes > 1) open_lanes({}, lanes);
        else close_lanes();
        const bool has_mask = inst.args.size() > from + 1;
        line(cat(has_mask ? cat("if (", value(inst.args[from + 1]), ") ") : "", to, " = ",
                 value(inst.args[from]), ";"));
    }

    void declare(const Inst& inst, std::span<const int> start) {
        for (size_t r = 0; r < inst.results.size(); ++r) {
            const std::string first = start.empty() ? "" : " = " + whole(start[r]);
            close_lanes();
            line(cat(type_name(inst.results[r]), " v", inst.results[r], first, ";"));
        }
    }
    void assign(const Inst& inst, const std::vector<int>& values) {
        for (size_t r = 0; r < inst.results.size(); ++r) {
            const std::string next = whole(values[r]);
            close_lanes();
            line(cat("v", inst.results[r], " = ", next, ";"));
        }
    }

    // The results hold the state.
    void print_loop(const Inst& inst) {
        close_lanes();
        const Block& body = inst.blocks[0];
        declare(inst, std::span(inst.args).subspan(3));
        const int at = body.parameters[0];
        line(cat("for (Index v", at, " = ", value(inst.args[0]), "; v", at, " < ",
                 value(inst.args[1]), "; v", at, " += ", value(inst.args[2]), ") {"));
        ++depth_;
        for (size_t r = 0; r < inst.results.size(); ++r) {
            const int state = body.parameters[r + 1];
            line(cat("const ", type_name(state), " v", state, " = v", inst.results[r], ";"));
        }
        print_block(body);
        assign(inst, body.results);
        --depth_;
        line("}");
    }

    void print_choose(const Inst& inst) {
        close_lanes();
        declare(inst, {});
        const auto arm = [&](const Block& block) {
            ++depth_;
            print_block(block);
            assign(inst, block.results);
            close_lanes();
            --depth_;
        };
        line(cat("if (", value(inst.args[0]), ") {"));
        arm(inst.blocks[0]);
        const Block& other = inst.blocks[1];
        if (!other.insts.empty() || !other.results.empty()) {
            line("} else {");
            arm(other);
        }
        line("}");
    }

    static std::string thread(Where where) {
        switch (where) {
            case Where::thread: return "threadIdx.x";
            case Where::block: return "blockIdx.x";
            case Where::blocks: return "gridDim.x";
            case Where::part: return "blockIdx.y";
        }
        return "";
    }

    const Function& function_;
    std::string text_, declarations_;
    std::vector<std::string> aliases_;  // for each value: the text that replaces a name
    int depth_ = 1, names_ = 0;
    bool in_lanes_ = false;
    int lanes_ = 1;
    size_t lanes_start_ = 0;
};

}  // namespace

std::string_view prelude() {
    static constexpr char kText[] =
#include "backends/nvrtc/prelude.inl"
        ;
    return kText;
}

std::string print_kernel(const KernelIR& kernel, const GpuPlan& plan, std::string_view entry) {
    const Function function = loops_of(kernel, {.width = plan.vector, .gpu = plan});
    return Printer(function).run(plan, entry);
}

}  // namespace megjit::nvrtc
