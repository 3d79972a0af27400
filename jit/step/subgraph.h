// jit/step/subgraph.h -- graphs that an op holds as attributes (AttrKind::graph): the body of a
// loop, the branches of a condition. The attribute is the graph's text, so that ops compare, hash,
// print and dump as all others do. Input i of such a graph has slot i; it holds no large constants.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/step/graph.h"

namespace megjit::jit {

// The graph of that text; the same one while it is in use. UserError for a text that is no graph.
std::shared_ptr<const Graph> subgraph(const std::string& text);

// Texts of the graphs that the node's op holds, in the order of its attributes.
std::vector<std::string> graph_texts(const Node& node);

// Types by slot.
std::vector<Type> input_types(const Graph& graph);

// May a run of it fail on its operands' values (OpDef::checks_values), or that of a node in its
// graphs?
bool checks_values(const Node& node);
bool may_fail(const Node& node);  // on values, or for what other processes do

}  // namespace megjit::jit
