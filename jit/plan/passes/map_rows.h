// jit/plan/passes/map_rows.h -- tables of which few rows are not zeros: the pass that makes rows
// and a map of them, and what kernels read by such maps (fuse_emit.cpp).
#pragma once

#include <optional>

#include "jit/step/graph.h"

namespace megjit::jit {

// The gradient of a table of words becomes sums in as many rows as the text has words, and a map
// from the table's rows to them. Why: it is neither written as a table nor read as one. Keeps the
// bits.
Graph map_rows(Graph graph);

// A value whose row i is row places[i] of `rows`.
struct MappedRows {
    ValueId rows, places;
};
// Nothing where places are not known to be rows, and where the value is to stay in memory.
std::optional<MappedRows> mapped_rows(const Graph& graph, ValueId id);

}  // namespace megjit::jit
