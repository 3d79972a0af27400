// jit/plan/passes/row_rules.h -- ops whose rows go their own ways: which part of its operands a
// part of a result's rows needs. The rows of a value run along its first axes, so that a part of
// them is one block of memory.
#pragma once

#include <optional>
#include <vector>

#include "jit/step/graph.h"

namespace megjit::jit {

// How many of the first axes the rows run along; nothing where they are not that many.
std::optional<int> row_axes(const runtime::Shape& shape, int64_t rows);

// One of so many equal parts of the rows, where each is one block.
std::optional<runtime::Shape> part_of(runtime::Shape shape, int64_t rows, int64_t parts);

// How a node's rows follow from its operands'.
struct RowRule {
    std::vector<bool> by_rows;  // by operand: a part of the rows needs the same part of it
    bool sums = false;  // over the rows
};

inline bool multiplies(const OpDef& op) { return op.contraction || op.multiplies_rows; }

// The rule by what the op says of itself (OpDef); nothing where its rows depend on each other.
std::optional<RowRule> rule_of(const Graph& graph, const Node& node, int64_t rows);

}  // namespace megjit::jit
