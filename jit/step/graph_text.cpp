// The text form of a graph: print and parse.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <unordered_map>

#include "codegen/line_reader.h"
#include "jit/step/graph.h"
#include "jit/step/subgraph.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"
#include "runtime/host/number_text.h"
#include "runtime/host/unknown_name.h"

namespace megjit::jit {
namespace {

using runtime::cat;
using runtime::DType;
using runtime::Shape;

// Small constants are printed as numbers, others as the hexadecimal bytes that they are.
constexpr int64_t kLargestNumbers = 16;

std::string item_text(const runtime::Tensor& tensor, int64_t i) {
    const double item = runtime::item_as_double(tensor, i);
    if (!runtime::is_floating(tensor.dtype())) return runtime::decimals_text(item, 0);
    return runtime::number_text(item, tensor.dtype() == DType::f64 ? 17 : 9);
}

std::string constant_text(const runtime::Tensor& tensor) {
    const int64_t n = tensor.type().numel();
    bool are_numbers = tensor.dtype() != DType::c64 && n <= kLargestNumbers;
    for (int64_t i = 0; are_numbers && i < n; ++i)
        are_numbers = runtime::is_exact_as_double(tensor, i);
    if (!are_numbers) {
        std::string hex = "x";
        static constexpr char kDigits[] = "0123456789abcdef";
        for (size_t i = 0; i < tensor.type().bytes(); ++i) {
            const uint8_t byte = tensor.as<uint8_t>()[i];
            hex += kDigits[byte >> 4];
            hex += kDigits[byte & 15];
        }
        return hex;
    }
    std::string text;
    for (int64_t i = 0; i < n; ++i) text += (i ? " " : "") + item_text(tensor, i);
    return text;
}

std::string list_text(std::span<const int64_t> list) {
    std::string text = "[";
    for (size_t i = 0; i < list.size(); ++i) text += (i ? ", " : "") + std::to_string(list[i]);
    return text + "]";
}

// Lines that belong to the node above them: its kernel, its graphs.
constexpr std::string_view kBlock = "  | ";

void print_block(std::string_view lines, std::string& text) {
    for (size_t from = 0; from < lines.size();) {
        const size_t end = std::min(lines.find('\n', from), lines.size());
        text += cat(kBlock, lines.substr(from, end - from), "\n");
        from = end + 1;
    }
}

void print_attrs(const Node& node, std::string& text) {
    text += " {";
    for (size_t i = 0; i < node.attrs.size(); ++i) {
        const runtime::AttrSpec& spec = node.op->attrs[i];
        const bool is_graph = spec.kind == runtime::AttrKind::graph;
        text += cat(i ? ", " : "", spec.name, "=",
                    is_graph ? "graph" : runtime::to_string(node.attrs[i]));
    }
    text += "}";
}

void print_node(const Graph& graph, const Node& node, std::string& text) {
    for (size_t i = 0; i < node.outputs.size(); ++i)
        text +=
            cat(i ? ", %" : "%", at(node.outputs[i]), ": ", to_string(graph.type(node.outputs[i])));
    text += " = ";
    switch (node.kind) {
        case NodeKind::input: text += cat("input ", node.slot); break;
        case NodeKind::constant: text += "const " + constant_text(*node.constant); break;
        case NodeKind::op: text += node.op->name; break;
        case NodeKind::fused: text += "fused"; break;
    }
    for (ValueId input : node.inputs) text += cat(" %", at(input));
    if (node.kind == NodeKind::op && !node.attrs.empty()) print_attrs(node, text);
    if (node.kind == NodeKind::fused) {
        text += " {ops=";
        for (size_t i = 0; i < node.ops.size(); ++i) text += (i ? "," : "") + node.ops[i];
        for (const codegen::LaunchShape& launch : launches_of(node))
            text += cat(", extents=", list_text(launch.extents),
                        ", strides=", list_text(launch.strides));
        text += "}";
    }
    std::string remark = node.where;
    for (const std::string& name : node.names)
        if (!name.empty()) remark += (remark.empty() ? "" : ", ") + name;
    if (!remark.empty()) text += "  # " + remark;
    text += "\n";
    if (node.kind == NodeKind::fused) print_block(codegen::print(node.kernel->kernel), text);
    for (const std::string& graph_text : graph_texts(node)) print_block(graph_text, text);
}

// Reads a line token by token: a sign or a name ends where another begins.
class GraphLine : public codegen::LineReader {
public:
    GraphLine(std::string_view line, int number) : LineReader("graph text", line, number) {}

    bool done() { return at_end() || rest_.starts_with("# "); }
    bool accept(std::string_view token) {
        skip_spaces();
        if (!rest_.starts_with(token)) return false;
        rest_.remove_prefix(token.size());
        return true;
    }
    void expect(std::string_view token) {
        if (!accept(token)) fault(cat("expected '", token, "'"));
    }
    std::string_view name() {
        skip_spaces();
        const auto is_part = [](char c) {
            return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_.+-", c);
        };
        const auto end = std::ranges::find_if_not(rest_, is_part);
        const std::string_view name = rest_.substr(0, static_cast<size_t>(end - rest_.begin()));
        if (name.empty()) fault("expected a name or a number");
        rest_.remove_prefix(name.size());
        return name;
    }
    int64_t integer() { return number<int64_t>(name()); }
    double real() {
        const std::string_view text = name();
        if (const auto value = runtime::number_in(text)) return *value;
        fault(cat("'", text, "' is not a number"));
    }
    std::vector<int64_t> integers() {
        std::vector<int64_t> list;
        expect("[");
        if (accept("]")) return list;
        do list.push_back(integer());
        while (accept(","));
        expect("]");
        return list;
    }
    std::string quoted() {
        expect("\"");
        std::string text;
        for (; !rest_.empty() && rest_[0] != '"'; rest_.remove_prefix(1)) {
            if (rest_[0] == '\\' && rest_.size() > 1) rest_.remove_prefix(1);
            text += rest_[0];
        }
        expect("\"");
        return text;
    }
    Type type(bool may_be_packed) {
        Type type{.dtype = runtime::dtype_from_name(name())};
        type.shape = Shape(integers());
        if (accept("@channels_last")) type.layout = runtime::Layout::channels_last;
        else if (may_be_packed && accept("@")) type.layout = layout();
        return type;
    }

private:
    runtime::Layout layout() {
        const std::string text(name());
        if (const auto found = runtime::layout_from_name(text)) return *found;
        fault(cat("there is no layout '", text, "'"));
    }
};

class Parser {
public:
    // Nested graphs lie `depth` deep in others; they hold small constants where they are plain.
    Parser(std::string_view text, bool is_plain, int depth = 0)
        : is_plain_(is_plain), depth_(depth) {
        for (size_t from = 0; from < text.size();) {
            const size_t end = std::min(text.find('\n', from), text.size());
            lines_.push_back(text.substr(from, end - from));
            from = end + 1;
        }
    }

    Graph run() {
        bool returned = false;
        for (size_t i = 0; i < lines_.size(); ++i) {
            GraphLine reader(lines_[i], static_cast<int>(i) + 1);
            if (reader.done()) continue;
            if (returned) reader.fault("nothing may follow 'return'");
            if (reader.accept("return")) {
                while (!reader.done()) graph_.outputs.push_back(value(reader));
                returned = true;
            } else {
                node(reader, i);
            }
        }
        if (!returned) GraphLine("", static_cast<int>(lines_.size())).fault("'return' is missing");
        return std::move(graph_);
    }

private:
    ValueId value(GraphLine& reader) {
        reader.expect("%");
        const std::string name(reader.name());
        auto found = names_.find(name);
        if (found == names_.end()) reader.fault(cat("%", name, " is not defined"));
        return found->second;
    }

    void node(GraphLine& reader, size_t& line) {
        std::vector<std::string> names;
        std::vector<Type> types;
        do {
            reader.expect("%");
            names.emplace_back(reader.name());
            reader.expect(":");
            types.push_back(reader.type(!is_plain_));  // packed: as this process does, not a file
        } while (reader.accept(","));
        reader.expect("=");
        const std::string op(reader.name());
        const bool is_small = depth_ > 0 && types[0].numel() <= kLargestNumbers;
        if (is_plain_ && ((op == "const" && !is_small) || op == "fused"))
            reader.fault(cat("'", op, "' may not stand here"));
        std::vector<ValueId> outputs;
        if (op == "input")
            outputs = {graph_.add_input(types[0], reader.number<int>(reader.name()))};
        else if (op == "const") outputs = {graph_.add_constant(constant(reader, types[0]))};
        else
            outputs = graph_.add(
                op == "fused" ? fused(reader, line) : application(reader, op, line), types);
        if (!reader.done()) reader.fault("unexpected text at the end");
        for (size_t i = 0; i < names.size(); ++i)
            if (!names_.emplace(names[i], outputs.at(i)).second)
                reader.fault(cat("%", names[i], " is defined twice"));
    }

    TensorRef constant(GraphLine& reader, const Type& type) {
        TensorRef tensor = runtime::empty_tensor(runtime::host_device(), type);
        const int64_t n = type.numel();
        if (reader.accept("x")) {
            const std::string_view hex = n ? reader.name() : "";
            if (hex.size() != 2 * type.bytes()) reader.fault("expected the bytes of the constant");
            for (size_t i = 0; i < type.bytes(); ++i) {
                int byte = 0;
                if (std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, byte, 16).ptr !=
                    hex.data() + 2 * i + 2)
                    reader.fault("bad byte");
                tensor->as<uint8_t>()[i] = static_cast<uint8_t>(byte);
            }
            return tensor;
        }
        const size_t size = size_of(type.dtype);
        for (int64_t i = 0; i < n; ++i) {
            const TensorRef number = runtime::scalar_tensor(reader.real(), type.dtype);
            std::memcpy(tensor->as<uint8_t>() + i * size, number->data(), size);
        }
        return tensor;
    }

    std::vector<ValueId> operands(GraphLine& reader) {
        std::vector<ValueId> result;
        while (!reader.done() && reader.accept("%")) {
            const std::string name(reader.name());
            auto found = names_.find(name);
            if (found == names_.end()) reader.fault(cat("%", name, " is not defined"));
            result.push_back(found->second);
        }
        return result;
    }

    // The lines of the block below `line`, up to `last` or to its end; `line` is their last one
    // then.
    std::string block(size_t& line, std::string_view last = "return") {
        std::string text;
        while (line + 1 < lines_.size() && lines_[line + 1].starts_with(kBlock)) {
            const std::string_view inner = lines_[++line].substr(kBlock.size());
            text.append(inner).append("\n");
            if (!last.empty() && inner.starts_with(last)) break;
        }
        return text;
    }

    std::string subgraph(const GraphLine& reader, size_t& line) {
        constexpr int kDeepest = 16;
        if (depth_ == kDeepest) reader.fault(cat("its graphs lie more than ", kDeepest, " deep"));
        return print(Parser(block(line), is_plain_, depth_ + 1).run());
    }

    Node application(GraphLine& reader, const std::string& name, size_t& line) {
        const OpDef* op = runtime::find_op_or_null(name);
        if (!op)
            reader.fault(cat("there is no op named '", name, "'"), runtime::how_to_get_op(name));
        Node node{.kind = NodeKind::op, .op = op, .inputs = operands(reader)};
        bool has_ended = op->attrs.empty();
        for (const runtime::AttrSpec& spec : op->attrs) {
            // An older text lacks the attributes that the op has got since.
            has_ended = has_ended || (!node.attrs.empty() && spec.fallback && reader.accept("}"));
            if (has_ended && spec.fallback) {
                node.attrs.push_back(*spec.fallback);
                continue;
            }
            reader.expect(node.attrs.empty() ? "{" : ",");
            reader.expect(spec.name);
            reader.expect("=");
            switch (spec.kind) {
                case runtime::AttrKind::integer: node.attrs.emplace_back(reader.integer()); break;
                case runtime::AttrKind::real: node.attrs.emplace_back(reader.real()); break;
                case runtime::AttrKind::integers: node.attrs.emplace_back(reader.integers()); break;
                case runtime::AttrKind::text: node.attrs.emplace_back(reader.quoted()); break;
                case runtime::AttrKind::graph:
                    reader.expect("graph");
                    node.attrs.emplace_back(subgraph(reader, line));
                    break;
            }
        }
        if (!has_ended) reader.expect("}");
        return node;
    }

    static codegen::LaunchShape launch(GraphLine& reader) {
        codegen::LaunchShape shape;
        shape.extents = reader.integers();
        reader.expect(",");
        reader.expect("strides=");
        shape.strides = reader.integers();
        return shape;
    }

    Node fused(GraphLine& reader, size_t& line) {
        Node node{.kind = NodeKind::fused, .inputs = operands(reader)};
        auto kernel = std::make_shared<codegen::BoundKernel>();
        reader.expect("{ops=");
        do node.ops.emplace_back(reader.name());
        while (reader.accept(",") && !reader.accept("extents="));
        kernel->launch = launch(reader);
        while (reader.accept(",")) {
            reader.expect("extents=");
            node.more_launches.push_back(launch(reader));
        }
        reader.expect("}");
        kernel->kernel = codegen::parse_kernel(block(line, ""));
        node.kernel = std::move(kernel);
        return node;
    }

    const bool is_plain_;  // inputs and ops only
    const int depth_;
    std::vector<std::string_view> lines_;
    std::unordered_map<std::string, ValueId> names_;
    Graph graph_;
};

}  // namespace

std::string print(const Graph& graph) {
    std::string text;
    for (const Node& node : graph.nodes()) print_node(graph, node, text);
    text += "return";
    for (ValueId output : graph.outputs) text += cat(" %", at(output));
    return text + "\n";
}

Graph parse_graph(std::string_view text) { return Parser(text, false).run(); }
Graph parse_plain_graph(std::string_view text) { return Parser(text, true).run(); }

}  // namespace megjit::jit
