// jit/plan/passes/branch_weights.h -- weights that nodes in the branches of a condition read: the
// caller gives them, so that they can be packed once, in its prologue.
#pragma once

#include <vector>

#include "jit/step/graph.h"

namespace megjit::jit {

// By operand of a "cond": the layout in which all its readers, in both branches, want it as their
// weights; row-major where they do not agree, or where there are none.
std::vector<runtime::Layout> layouts_in_branches(const Node& cond, runtime::Device& device);

// Writes branches that are given operands in these layouts.
void set_layouts_in_branches(Node& cond, const std::vector<runtime::Layout>& layouts);

}  // namespace megjit::jit
