#include "jit/api/static_code.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <set>

#include "codegen/cache_file.h"
#include "codegen/compiler.h"
#include "codegen/op_kernel.h"
#include "codegen/strides.h"
#include "jit/api/static_lowering.h"
#include "jit/export.h"
#include "jit/pipeline.h"
#include "jit/program_layout.h"
#include "runtime/core/device.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"
#include "runtime/host/isa.h"
#include "runtime/ops/known.h"

namespace megjit::api {
namespace {

using codegen::BoundKernel;
using jit::Node;
using jit::NodeKind;
using runtime::cat;
using runtime::DType;

bool is_identifier(const std::string& name) {
    const auto is_letter = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
           std::ranges::all_of(name, is_letter);
}

// Of C and C++, those that somebody might give to a tensor.
bool is_keyword(const std::string& name) {
    static const std::set<std::string> keywords = {
        "auto",     "bool",    "break",    "case",     "char",   "class",    "const",    "default",
        "delete",   "do",      "double",   "else",     "enum",   "extern",   "false",    "final",
        "float",    "for",     "friend",   "if",       "inline", "int",      "long",     "new",
        "operator", "private", "public",   "return",   "short",  "register", "signed",   "static",
        "struct",   "switch",  "this",     "template", "true",   "union",    "unsigned", "using",
        "virtual",  "void",    "volatile", "while"};
    return keywords.contains(name);
}

// Names of inputs or outputs as members of a struct: other characters become '_', and no two are
// the same.
std::vector<std::string> members_of(const std::vector<std::string>& names, const char* unnamed) {
    std::vector<std::string> members;
    for (size_t i = 0; i < names.size(); ++i) {
        std::string member = names[i].empty() ? cat(unnamed, i) : names[i];
        for (char& c : member)
            if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
        if (std::isdigit(static_cast<unsigned char>(member[0]))) member.insert(0, "_");
        while (is_keyword(member) || std::ranges::count(members, member)) member += "_";
        members.push_back(std::move(member));
    }
    return members;
}

const char* c_type_of(DType dtype) {
    switch (dtype) {
        case DType::f32: return "float";
        case DType::i32: return "int32_t";
        case DType::i16: return "int16_t";
        case DType::i8: return "int8_t";
        default: return runtime::size_of(dtype) == 2 ? "uint16_t" : "uint8_t";
    }
}

class Writer {
public:
    Writer(const jit::Model& function, std::string name)
        : function_(function), name_(std::move(name)), prepared_(plan()) {
        const jit::BufferPlan buffers = jit::plan_buffers(prepared_, {}, {}, false);
        layout_ = jit::lay_out(prepared_, buffers);
        outputs_ = members_of(function.outputs, "output_");
        inputs_ = members_of(function.inputs, "input_");
    }

    std::map<std::string, std::string> files() {
        for (const jit::ProgramLayout::Step& step : layout_.steps) write_step(step);
        for (size_t i = 0; i < layout_.outputs.size(); ++i) copy_output(i);
        files_[name_ + ".h"] = header();
        files_[name_ + ".c"] = source();
        files_[name_ + ".bin"] = constants_;
        files_["CMakeLists.txt"] = cmake();
        return std::move(files_);
    }

private:
    jit::PreparedGraph plan() const {
        std::vector<size_t> wanted(function_.outputs.size());
        for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = i;
        jit::Graph graph = jit::graph_for(function_, wanted);
        graph.set_device(runtime::host_device());
        for (size_t id = 0; id < graph.value_count(); ++id)
            if (graph.type(static_cast<jit::ValueId>(id)).dtype == DType::c64)
                runtime::user_error({.what = "static code: complex numbers have no kernels"});
        jit::PipelineOptions options{.opt_level = 3,
                                     .exact = function_.exact,
                                     .backend = "MLIR",
                                     .products = jit::Products::generated,
                                     .splits_products = true};
        graph = jit::expand(jit::run_passes_before_plan(std::move(graph), options), options);
        if (!options.exact) graph = with_folded_scales(std::move(graph), options);
        graph = jit::run_passes_with_plan(without_windows(graph), options);
        return jit::prepare_to_plan(with_kernels(graph), {});
    }

    // As optimize_for_inference does it: all but the arguments is fixed.
    jit::Graph with_folded_scales(jit::Graph graph, jit::PipelineOptions options) const {
        options.device = &graph.device();
        options.fixed.resize(function_.inputs.size() + 1);
        return jit::fold_scales(std::move(graph), options);
    }

    const Type& type(jit::ValueId id) const { return prepared_.graph.type(id); }
    void line(const std::string& text) { body_ += "    " + text + "\n"; }

    // ---- addresses

    size_t constant_at(uint32_t value) {
        const auto [place, is_new] = places_.try_emplace(value, constants_.size());
        if (is_new) {
            const runtime::TensorRef constant = runtime::row_major(
                prepared_.graph.producer(static_cast<jit::ValueId>(value)).constant);
            constants_.append(constant->as<char>(), constant->type().bytes());
            constants_.resize((constants_.size() + jit::kOperandAlign - 1) / jit::kOperandAlign *
                              jit::kOperandAlign);
        }
        return place->second;
    }
    std::string output(size_t i) const { return cat("(char*)outputs->", outputs_[i]); }
    std::string input(size_t i) const { return cat("(char*)inputs->", inputs_[i]); }
    std::string constant(uint32_t value) {
        return cat("(char*)", name_, "_constants + ", constant_at(value));
    }
    std::string address(const jit::ProgramLayout::Operand& operand, int64_t more = 0) {
        const std::string start = layout_.start_of(
            operand, std::string("memory"), [&](uint32_t slot) { return input(slot); },
            [&](uint32_t i) { return output(i); }, [&](uint32_t value) { return constant(value); });
        return cat(start, " + ", static_cast<int64_t>(operand.offset) + more);
    }

    // ---- steps

    void write_step(const jit::ProgramLayout::Step& step) {
        const auto* const operands = layout_.operands.data() + step.first_operand;
        if (step.is_copy) return copy(address(operands[1]), address(operands[0]), step.copy_bytes);
        const Node& node = prepared_.node(step.node);
        if (!node.where.empty())
            line(cat("/* ", jit::name_of(node), ", ", as_comment(node.where), " */"));
        if (node.op == &runtime::ops::concat()) return write_concat(node, operands);
        if (node.op == &runtime::ops::slice()) return write_slice(node, operands);
        if (node.op == &runtime::ops::slice_set()) return write_slice_set(node, operands);
        if (node.op && node.op->only_checks) return write_check(node, operands);
        const size_t inputs = codegen::memory_inputs(node.kernel->kernel),
                     outputs = node.kernel->kernel.outputs.size();
        const auto launches = jit::launches_of(node);
        for (size_t n = 0; n < launches.size(); ++n) {
            std::vector<std::string> in, out;
            for (size_t i = 0; i < inputs; ++i) in.push_back(address(operands[n * inputs + i]));
            for (size_t i = 0; i < outputs; ++i)
                out.push_back(address(operands[step.inputs + n * outputs + i]));
            launch({node.kernel->kernel, launches[n]}, in, out);
        }
    }

    void launch(const BoundKernel& bound, const std::vector<std::string>& in,
                const std::vector<std::string>& out) {
        const int64_t units = bound.launch.numel() ? codegen::units(bound.kernel, bound.launch) : 0;
        if (units == 0) return;
        line("{");
        line("    void* const in[] = {" + joined(in) + "};");
        line("    void* const out[] = {" + joined(out) + "};");
        line("    static const int64_t extents[] = {" + joined(bound.launch.extents) + "};");
        line("    static const int64_t strides[] = {" + joined(bound.launch.strides) + "};");
        line(cat("    ", symbol_of(bound.kernel), "(in, out, extents, strides, 0, ", units, ");"));
        line("}");
    }

    template <class List>
    static std::string joined(const List& list) {
        std::string text;
        for (const auto& each : list) text += cat(text.empty() ? "" : ", ", each);
        return text.empty() ? "0" : text;
    }
    static std::string as_comment(std::string text) {
        for (char& c : text)
            if (c == '*' || c == '\n') c = ' ';
        return text;
    }

    void copy(const std::string& to, const std::string& from, size_t bytes) {
        if (bytes > 0 && to != from) line(cat("memcpy(", to, ", ", from, ", ", bytes, ");"));
    }

    // An operand may lie in the result already.
    void write_concat(const Node& node, const jit::ProgramLayout::Operand* operands) {
        const Type& whole = type(node.outputs[0]);
        int axis = static_cast<int>(std::get<int64_t>(node.attrs[0]));
        if (axis < 0) axis += whole.rank();
        const auto block_of = [axis](const Type& of) {  // bytes that lie side by side
            int64_t block = static_cast<int64_t>(runtime::size_of(of.dtype));
            for (int a = axis; a < of.rank(); ++a) block *= of.shape[a];
            return block;
        };
        const int64_t stride = block_of(whole);
        int64_t at = 0;
        for (size_t i = 0; i < node.inputs.size(); ++i) {
            const Type& part = type(node.inputs[i]);
            const int64_t block = block_of(part);
            const std::string from = address(operands[i]),
                              to = address(operands[node.inputs.size()], at);
            at += block;
            if (block == 0 || part.numel() == 0 || from == to) continue;
            const int64_t blocks = static_cast<int64_t>(part.bytes()) / block;
            line(cat("for (size_t i = 0; i < ", blocks, "; ++i) memcpy(", to, " + i * ", stride,
                     ", ", from, " + i * ", block, ", ", block, ");"));
        }
    }

    void write_slice(const Node& node, const jit::ProgramLayout::Operand* operands) {
        int64_t first = 0;
        const BoundKernel kernel =
            codegen::slice_kernel({*node.op, node.attrs, prepared_.graph.types(node.inputs)},
                                  type(node.outputs[0]), first);
        first *= static_cast<int64_t>(runtime::size_of(type(node.outputs[0]).dtype));
        const std::string from = address(operands[0], first), to = address(operands[1]);
        if (from != to) launch(kernel, {from}, {to});  // else it lies there
    }

    // Loops over the part, innermost elements that lie side by side at once.
    void write_slice_set(const Node& node, const jit::ProgramLayout::Operand* operands) {
        const Type &whole = type(node.outputs[0]), &part = type(node.inputs[1]);
        const runtime::OpCall call{*node.op, node.attrs, {}};
        const auto &begin = call.integers("begin"), &step = call.integers("step");
        copy(address(operands[2]), address(operands[0]), whole.bytes());
        if (part.numel() == 0) return;
        const auto size = static_cast<int64_t>(runtime::size_of(part.dtype));
        const std::vector<int64_t> to = codegen::dense_strides(whole),
                                   from = codegen::dense_strides(part);
        int inner = part.rank();
        int64_t block = size, first = 0;  // bytes
        for (size_t axis = 0; axis < to.size(); ++axis) first += begin[axis] * to[axis] * size;
        while (inner > 0 && step[static_cast<size_t>(inner) - 1] == 1 &&
               block == to[static_cast<size_t>(inner) - 1] * size)
            block *= part.shape[--inner];
        std::string at_to = address(operands[2], first), at_from = address(operands[1]), loops;
        for (int axis = 0; axis < inner; ++axis) {
            const auto i = static_cast<size_t>(axis);
            loops += cat("for (ptrdiff_t i", axis, " = 0; i", axis, " < ", part.shape[axis],
                         "; ++i", axis, ") ");
            at_to += cat(" + i", axis, " * ", to[i] * step[i] * size);
            at_from += cat(" + i", axis, " * ", from[i] * size);
        }
        line(cat(loops, "memcpy(", at_to, ", ", at_from, ", ", block, ");"));
    }

    // Places from the end count from there, labels do not.
    void write_check(const Node& node, const jit::ProgramLayout::Operand* operands) {
        const bool is_label = node.op->name == "checked_label";
        const runtime::OpCall call{*node.op, node.attrs, {}};
        const int64_t extent = call.integer(is_label ? "classes" : "extent");
        const std::string from = address(operands[0]), to = address(operands[1]);
        line(cat("for (size_t i = 0; i < ", type(node.outputs[0]).numel(), "; ++i) {"));
        line(cat("    const int32_t place = ((const int32_t*)(", from, "))[i];"));
        line(cat("    if (place < ", is_label ? 0 : -extent, " || place >= ", extent,
                 ") return 3;"));
        line(cat("    ((int32_t*)(", to, "))[i] = place < 0 ? (int32_t)(place + ", extent,
                 ") : place;"));
        line("}");
    }

    void copy_output(size_t i) {
        if (const auto from = layout_.copied_from(i))
            copy(output(i), address(*from), type(prepared_.graph.outputs[i]).bytes());
    }

    // ---- kernels: each has a symbol of its own, as long as the one that compilers give

    std::string symbol_of(const codegen::KernelIR& kernel) {
        constexpr std::string_view kGiven = "megjit_kernel";
        const std::string text = print(kernel);
        std::string& symbol = symbols_[text];
        if (!symbol.empty()) return symbol;
        char made[kGiven.size() + 1];
        std::snprintf(made, sizeof made, "k%012llx",
                      static_cast<unsigned long long>(codegen::hash(name_ + "\n" + text, 0) >> 16));
        symbol = made;
        std::string object = codegen::KernelService::instance().object_of(kernel);
        const std::string whole = '\0' + std::string(kGiven) + '\0';
        const size_t at = object.find(whole);
        if (at == std::string::npos)
            throw runtime::InternalError("the object of a kernel has no symbol");
        object.replace(at + 1, symbol.size(), symbol);
        files_[symbol + ".o"] = std::move(object);
        return symbol;
    }

    // ---- texts

    std::string members(const std::vector<std::string>& names, const std::vector<Type>& types,
                        const char* qualifier) const {
        std::string text;
        for (size_t i = 0; i < names.size(); ++i)
            text += cat("    ", qualifier, c_type_of(types[i].dtype), "* ", names[i], "; /* ",
                        to_string(types[i]), " */\n");
        return text.empty() ? "    char none;\n" : text;
    }

    std::string header() const {
        std::vector<Type> inputs = function_.input_types(),
                          outputs = prepared_.graph.types(prepared_.graph.outputs);
        inputs.resize(inputs_.size());
        return cat(
            "/* Made by `python -m megengine package --static`. Tensors are row-major; float16 and bfloat16 are their bits. */\n"
            "#ifndef ",
            name_, "_h\n#define ", name_,
            "_h\n#include <stddef.h>\n#include <stdint.h>\n"
            "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
            "typedef struct ",
            name_, "_inputs {\n", members(inputs_, inputs, "const "), "} ", name_,
            "_inputs;\n"
            "typedef struct ",
            name_, "_outputs {\n", members(outputs_, outputs, ""), "} ", name_,
            "_outputs;\n\n"
            "/* What a run needs beside inputs and outputs: so many bytes, at a multiple of ",
            name_,
            "_arena_align. */\n"
            "#define ",
            name_, "_arena_bytes ((size_t)",
            std::max<size_t>(layout_.arena_bytes, jit::kOperandAlign),
            ")\n"
            "#define ",
            name_, "_arena_align ", jit::kOperandAlign,
            "\n\n"
            "/* 0; 1 where the CPU lacks ",
            runtime::name_of(runtime::isa()),
            "; 2 where the arena is null or unaligned: nothing is done then.\n"
            "   3 where an index or a label is out of range: the results are not complete then.\n"
            "   Inputs are only read; no two of the tensors may overlap. Threads need an arena each. */\n"
            "int ",
            name_, "_run(const ", name_, "_inputs* inputs, const ", name_,
            "_outputs* outputs, void* arena);\n\n"
            "#ifdef __cplusplus\n}\n#endif\n#endif\n");
    }

    std::string source() const {
        std::string declared,
            checked = "__builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\")";
        for (const auto& [text, symbol] : symbols_)
            declared += cat("extern kernel ", symbol, ";\n");
        if (runtime::isa() >= runtime::Isa::avx512)
            for (const char* feature : {"avx512f", "avx512bw", "avx512dq", "avx512vl"})
                checked += cat(" && __builtin_cpu_supports(\"", feature, "\")");
        return cat(
            "#include \"", name_,
            ".h\"\n\n#include <string.h>\n\n"
            "/* ",
            name_,
            ".bin lies beside this file: the assembler looks for it where -Wa,-I says. */\n"
            "__asm__(\".section .rodata\\n.balign 64\\n.globl ",
            name_, "_constants\\n.hidden ", name_, "_constants\\n", name_,
            "_constants:\\n.incbin \\\"", name_,
            ".bin\\\"\\n.byte 0\\n.text\\n\");\n"
            "extern const unsigned char ",
            name_,
            "_constants[] __attribute__((visibility(\"hidden\")));\n\n"
            "typedef void kernel(void* const* in, void* const* out, const int64_t* extents, const int64_t* strides, int64_t from, int64_t to);\n",
            declared, "\nint ", name_, "_run(const ", name_, "_inputs* inputs, const ", name_,
            "_outputs* outputs, void* arena) {\n"
            "    char* const memory = (char*)arena;\n    (void)inputs, (void)outputs, (void)memory, (void)",
            name_,
            "_constants;\n"
            "    if (!(",
            checked,
            ")) return 1;\n"
            "    if (arena == 0 || (uintptr_t)arena % ",
            name_, "_arena_align) return 2;\n", body_, "    return 0;\n}\n");
    }

    std::string cmake() const {
        std::string objects;
        for (const auto& [text, symbol] : symbols_) objects += cat(" ", symbol, ".o");
        return cat(
            "# add_subdirectory() this folder, and link ", name_, ".\nadd_library(", name_,
            " STATIC ", name_, ".c", objects,
            ")\n"
            "set_source_files_properties(",
            name_,
            ".c PROPERTIES COMPILE_OPTIONS \"-Wa,-I${CMAKE_CURRENT_LIST_DIR}\" OBJECT_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/",
            name_,
            ".bin)\n"
            "set_target_properties(",
            name_,
            " PROPERTIES POSITION_INDEPENDENT_CODE ON)\n"
            "target_include_directories(",
            name_,
            " PUBLIC ${CMAKE_CURRENT_LIST_DIR})\n"
            "target_link_libraries(",
            name_, " PUBLIC m)\n");
    }

    const jit::Model& function_;
    const std::string name_;
    const jit::PreparedGraph prepared_;
    jit::ProgramLayout layout_;
    std::vector<std::string> inputs_, outputs_;
    std::map<uint32_t, size_t> places_;  // by value: where a constant lies
    std::map<std::string, std::string> symbols_;  // by kernel
    std::map<std::string, std::string> files_;
    std::string constants_, body_;
};

}  // namespace

std::map<std::string, std::string> static_code_of(File& file, const std::string& function,
                                                  const std::string& name) {
    if (!is_identifier(name))
        runtime::user_error({.what = cat("static code: '", name, "' is no name in C"),
                             .fix = "use letters, digits and '_', such as net"});
    return Writer(file.without_states(function), name).files();
}

}  // namespace megjit::api
