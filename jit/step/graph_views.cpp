// Graphs as pictures: Graphviz text, and one HTML page.
#include "jit/step/graph.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::cat;

std::string escaped(std::string_view text) {
    std::string result;
    for (char c : text) {
        switch (c) {
            case '&': result += "&amp;"; break;
            case '<': result += "&lt;"; break;
            case '>': result += "&gt;"; break;
            case '"': result += "&quot;"; break;
            default: result += c;
        }
    }
    return result;
}

std::string label(const Node& node) {
    switch (node.kind) {
        case NodeKind::input: return cat("input ", node.slot);
        case NodeKind::constant: return "const";
        case NodeKind::op: return node.op->name;
        case NodeKind::fused: break;
    }
    std::string ops;
    for (const std::string& op : node.ops) ops += (ops.empty() ? "" : " ") + op;
    return "fused: " + ops;
}

// Fusion groups that stand next to each other have hues of their own; `index` is the node's.
std::string_view colour(const Node& node, size_t index) {
    switch (node.kind) {
        case NodeKind::input: return "#d9ead3";
        case NodeKind::constant: return "#eeeeee";
        case NodeKind::op: return "#fff2cc";
        case NodeKind::fused: {
            static constexpr std::string_view kHues[] = {"#cfe2f3", "#d9d2e9", "#ead1dc", "#f9cb9c",
                                                         "#b6d7a8", "#a2c4c9", "#ffe599", "#b4a7d6",
                                                         "#9fc5e8", "#d5a6bd"};
            return kHues[index % std::size(kHues)];
        }
    }
    return "#ffffff";
}

}  // namespace

std::string to_dot(const Graph& graph) {
    std::string text =
        "digraph graph_ {\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n";
    for (size_t id = 0; id < graph.nodes().size(); ++id) {
        const Node& node = graph.nodes()[id];
        text += cat("  n", id, " [label=\"", escaped(label(node)), "\", fillcolor=\"",
                    colour(node, id), "\", tooltip=\"", escaped(node.where), "\"];\n");
        for (ValueId input : node.inputs)
            text += cat("  n", at(graph.value(input).producer), " -> n", id, " [label=\"",
                        to_string(graph.type(input)), "\"];\n");
    }
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
        text +=
            cat("  out", i, " [label=\"output ", i, "\", shape=ellipse, fillcolor=\"#f4cccc\"];\n");
        text += cat("  n", at(graph.value(graph.outputs[i]).producer), " -> out", i, ";\n");
    }
    return text + "}\n";
}

std::string to_html(const Graph& graph, std::string_view title) {
    std::string text = cat(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>", escaped(title),
        "</title>\n"
        "<style>body{font:13px/1.5 ui-monospace,monospace;margin:2em}td{padding:0 1em;vertical-align:top}"
        "tr:target{outline:2px solid #c00}a{color:#06c;text-decoration:none}</style>\n<h1>",
        escaped(title), "</h1><table>\n");
    const auto link = [](ValueId id) {
        return cat("<a href=\"#v", at(id), "\">%", at(id), "</a>");
    };
    for (size_t id = 0; id < graph.nodes().size(); ++id) {
        const Node& node = graph.nodes()[id];
        std::string results, operands;
        for (ValueId output : node.outputs)
            results += cat(results.empty() ? "" : "<br>", "<span id=\"v", at(output), "\">%",
                           at(output), "</span>: ", to_string(graph.type(output)));
        for (ValueId input : node.inputs) operands += cat(operands.empty() ? "" : " ", link(input));
        text += cat("<tr style=\"background:", colour(node, id), "\"><td>", results, "</td><td>",
                    escaped(label(node)), "</td><td>", operands, "</td><td>", escaped(node.where),
                    "</td></tr>\n");
    }
    text += "</table><p>returns";
    for (ValueId output : graph.outputs) text += " " + link(output);
    return text + "</p></html>\n";
}

}  // namespace megjit::jit
