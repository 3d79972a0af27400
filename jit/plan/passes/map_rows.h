// jit/plan/passes/map_rows.h -- values whose rows kernels read by a map (fuse_emit.cpp), as the
// pass map_rows makes them.
#pragma once

#include <optional>

#include "jit/step/graph.h"

namespace megjit::jit {

// A value whose row i is row places[i] of `rows`.
struct MappedRows {
    ValueId rows, places;
};
// Nothing where places are not known to be rows, and where the value is to stay in memory.
std::optional<MappedRows> mapped_rows(const Graph& graph, ValueId id);

}  // namespace megjit::jit
