#include "jit/api/static_code.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <optional>

#include "codegen/cache_file.h"
#include "codegen/compiler.h"
#include "codegen/op_kernel.h"
#include "codegen/strides.h"
#include "jit/api/static_lowering.h"
#include "jit/api/static_texts.h"
#include "jit/file/export.h"
#include "jit/plan/pipeline.h"
#include "jit/plan/program_layout.h"
#include "runtime/core/device.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"
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

class Writer {
public:
    // `states` are the file's; the function reads them, or replaces them in place.
    Writer(const jit::Model& function, const std::vector<jit::State>& states, std::string name,
           runtime::Isa isa)
        : function_(function),
          step_(jit::step_for(function, runtime::host_device())),
          prepared_(plan()) {
        texts_.name = std::move(name);
        texts_.isa = isa;
        layout_ = jit::lay_out(prepared_, jit::plan_buffers(prepared_, step_, false));
        texts_.arena_bytes = layout_.arena_bytes;
        add_members(states);
        place_results();
    }

    std::map<std::string, std::string> files() {
        for (const jit::ProgramLayout::Step& step : layout_.steps) write_step(step);
        give_outputs();
        write_start();
        for (const auto& [text, symbol] : symbols_) texts_.kernels.push_back(symbol);
        files_[texts_.name + ".h"] = texts_.header();
        files_[texts_.name + ".c"] = texts_.source();
        files_[texts_.name + ".bin"] = constants_;
        files_["CMakeLists.txt"] = texts_.cmake();
        return std::move(files_);
    }

private:
    void add_members(const std::vector<jit::State>& states) {
        const std::vector<Type> types = function_.input_types();
        const size_t inputs = function_.input_names.size(), outputs = function_.output_names.size();
        for (const std::string& name : members_of(function_.input_names, "input_"))
            texts_.inputs.push_back({name, types[texts_.inputs.size()]});
        for (const std::string& name : members_of(function_.output_names, "output_"))
            texts_.outputs.push_back({name, type(prepared_.graph.outputs[texts_.outputs.size()])});
        std::vector<std::string> names;
        for (const jit::Input& input : function_.states()) {
            names.push_back(states[input.state].name);
            starts_.push_back(states[input.state].value);
            if (input.kind == jit::Input::Kind::state) replaces_.push_back(names.size() - 1);
        }
        for (const std::string& name : members_of(names, "state_")) {
            const size_t i = texts_.states.size();
            texts_.states.push_back(
                {name, types[inputs + i], function_.states()[i].kind == jit::Input::Kind::state});
        }
        if (outputs + replaces_.size() != prepared_.graph.outputs.size())
            throw runtime::InternalError("static code: outputs without a place");
    }

    // New values of states that lie on no input get a place after the arena.
    void place_results() {
        result_places_.resize(layout_.results.size());
        for (size_t i = 0; i < layout_.results.size(); ++i)
            if (!layout_.results[i].is_donated && layout_.first_outputs[i] >= texts_.outputs.size())
                result_places_[i] = more_arena(type(layout_.results[i].value).bytes());
    }
    size_t more_arena(size_t bytes) {
        const auto up = [](size_t n) {
            return (n + jit::kOperandAlign - 1) / jit::kOperandAlign * jit::kOperandAlign;
        };
        const size_t at = up(texts_.arena_bytes);
        texts_.arena_bytes = at + up(bytes);
        return at;
    }

    jit::PreparedGraph plan() const {
        jit::Graph graph = step_.graph;
        for (size_t id = 0; id < graph.value_count(); ++id)
            if (graph.type(static_cast<jit::ValueId>(id)).dtype == DType::c64)
                runtime::user_error({.what = "static code: complex numbers have no kernels"});
        jit::PipelineOptions options{.opt_level = 3,
                                     .exact = function_.exact,
                                     .backend = "MLIR",
                                     .products = jit::Products::generated,
                                     .splits_products = true};
        graph =
            jit::expand(jit::run_passes_before("order_steps", std::move(graph), options), options);
        if (!options.exact) graph = with_folded_scales(std::move(graph), options);
        graph = jit::run_passes_from("order_steps", without_windows(graph), options);
        return jit::prepare_to_plan(with_kernels(graph), {});
    }

    // Fixes all but the arguments, as optimize_for_inference does.
    jit::Graph with_folded_scales(jit::Graph graph, jit::PipelineOptions options) const {
        const jit::Step step;
        options.device = &graph.device();
        options.step = &step;
        return jit::fold_scales(std::move(graph), options);
    }

    const Type& type(jit::ValueId id) const { return prepared_.graph.type(id); }
    void line(const std::string& text) { texts_.steps += "    " + text + "\n"; }

    // ---- addresses

    size_t add_constant(const runtime::TensorRef& value) {
        const runtime::TensorRef constant = runtime::row_major(value);
        const size_t at = constants_.size();
        constants_.append(constant->as<char>(), constant->type().bytes());
        constants_.resize((constants_.size() + jit::kOperandAlign - 1) / jit::kOperandAlign *
                          jit::kOperandAlign);
        return at;
    }
    std::string output(size_t i) const { return cat("(char*)outputs->", texts_.outputs[i].name); }
    std::string input(size_t slot) const {
        const size_t inputs = texts_.inputs.size();
        return slot < inputs ? cat("(char*)inputs->", texts_.inputs[slot].name)
                             : state(slot - inputs);
    }
    std::string state(size_t i) const { return cat("(char*)states->", texts_.states[i].name); }
    std::string constant_at(size_t place) const {
        return cat("(char*)", texts_.name, "_constants + ", place);
    }
    std::string constant(uint32_t value) {
        const auto [place, is_new] = places_.try_emplace(value);
        if (is_new)
            place->second =
                add_constant(prepared_.graph.producer(static_cast<jit::ValueId>(value)).constant);
        return constant_at(place->second);
    }
    // Where a result lies that is not on an input.
    std::string result(size_t output_of_it) const {
        const size_t index = layout_.outputs[output_of_it].index;
        return result_places_[index] ? cat("memory + ", *result_places_[index])
                                     : output(output_of_it);
    }
    std::string address(const jit::ProgramLayout::Operand& operand, int64_t more = 0) {
        const std::string start = layout_.start_of(
            operand, std::string("memory"), [&](uint32_t slot) { return input(slot); },
            [&](uint32_t i) { return result(i); }, [&](uint32_t value) { return constant(value); });
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
        // Takes as many units as are worth a thread, as a program does.
        const int64_t elements = 32768 / (1 + bound.kernel.program.size() / 16),
                      step = std::max<int64_t>(
                          1, elements / std::max<int64_t>(1, bound.launch.numel() / units));
        line(cat("    const launch all = {", symbol_of(bound.kernel),
                 ", in, out, extents, strides, ", units, ", ", step, "};"));
        line("    run_launch(threads, all);");
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
        if (from != to) launch(kernel, {from}, {to});  // else the value lies there already
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

    // After all steps it writes outputs, then states; none is written while another one's new value
    // lies there.
    void give_outputs() {
        const size_t outputs = texts_.outputs.size();
        for (size_t i = 0; i < outputs; ++i)
            copy(output(i), lies_at(i), texts_.outputs[i].type.bytes());
        std::vector<std::string> from;
        for (size_t k = 0; k < replaces_.size(); ++k) {
            from.push_back(lies_at(outputs + k));
            if (!from[k].starts_with("(char*)states->") || from[k] == state(replaces_[k])) continue;
            const size_t bytes = texts_.states[replaces_[k]].type.bytes();
            const std::string aside = cat("memory + ", more_arena(bytes));
            copy(aside, from[k], bytes);
            from[k] = aside;
        }
        for (size_t k = 0; k < replaces_.size(); ++k)
            copy(state(replaces_[k]), from[k], texts_.states[replaces_[k]].type.bytes());
    }
    std::string lies_at(size_t graph_output) {
        using From = jit::ProgramLayout::Output::From;
        const auto [from, index] = layout_.outputs[graph_output];
        if (from == From::input) return input(index);
        if (from == From::constant) return constant(index);
        const jit::ProgramLayout::Result& made = layout_.results[index];
        return made.is_donated ? input(made.slot) : result(layout_.first_outputs[index]);
    }

    void write_start() {
        for (size_t i = 0; i < starts_.size(); ++i)
            texts_.start +=
                cat("    memcpy(", state(i), ", ", constant_at(add_constant(starts_[i])), ", ",
                    texts_.states[i].type.bytes(), ");\n");
    }

    // ---- kernels: each has a symbol of its own, as long as the one that compilers give

    std::string symbol_of(const codegen::KernelIR& kernel) {
        constexpr std::string_view kGiven = "megjit_kernel";
        const std::string text = print(kernel);
        std::string& symbol = symbols_[text];
        if (!symbol.empty()) return symbol;
        char made[kGiven.size() + 1];
        std::snprintf(
            made, sizeof made, "k%012llx",
            static_cast<unsigned long long>(codegen::hash(texts_.name + "\n" + text, 0) >> 16));
        symbol = made;
        std::string object = codegen::KernelService::instance().object_of(kernel, texts_.isa);
        const std::string whole = '\0' + std::string(kGiven) + '\0';
        const size_t at = object.find(whole);
        if (at == std::string::npos)
            throw runtime::InternalError("the object of a kernel has no symbol");
        object.replace(at + 1, symbol.size(), symbol);
        files_[symbol + ".o"] = std::move(object);
        return symbol;
    }

    const jit::Model& function_;
    const jit::Step step_;
    const jit::PreparedGraph prepared_;
    jit::ProgramLayout layout_;
    StaticTexts texts_;
    std::vector<size_t> replaces_;  // by output after the caller's: which state
    std::vector<runtime::TensorRef> starts_;  // by state
    std::vector<std::optional<size_t>> result_places_;  // in the arena
    std::map<uint32_t, size_t> places_;  // by value: where a constant lies
    std::map<std::string, std::string> symbols_;  // by kernel
    std::map<std::string, std::string> files_;
    std::string constants_;
};

}  // namespace

std::map<std::string, std::string> static_code_of(File& file, const std::string& function,
                                                  const std::string& name, bool keeps_states,
                                                  runtime::Isa isa) {
    if (!is_identifier(name))
        runtime::user_error({.what = cat("static code: '", name, "' is no name in C"),
                             .fix = "use letters, digits and '_', such as net"});
    const jit::Model& model = *file.function(function);
    keeps_states = keeps_states || model.replaces_states();
    const std::vector<jit::State> states = file.states_on_host();
    if (!keeps_states) return Writer(file.without_states(function), states, name, isa).files();
    jit::refuse_bounds(model);
    for (const jit::Input& input : model.states())
        if (input.kind == jit::Input::Kind::key)
            runtime::user_error({.what = cat("static code: the function ", model.name,
                                             " draws from the state ", states[input.state].name),
                                 .why = "random numbers have no generated kernels",
                                 .fix = "load the dump by libmegjit, which has them"});
    return Writer(model, states, name, isa).files();
}

}  // namespace megjit::api
