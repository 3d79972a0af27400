// tests/fuzz/random_graphs.h -- random graphs with data for them, each from a seed.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/step/graph.h"

namespace megjit::fuzz {

using jit::Graph;
using jit::ValueId;
using runtime::TensorRef;

// A graph to be judged.
struct Subject {
    Graph graph;
    std::vector<TensorRef> inputs;  // by slot
    // By value: how far an optimised program's elements may be off, for its sums have another
    // order; 0: same bits.
    std::vector<double> tolerance;
};

// What values occur.
//   tame: finite and moderate; no op stands where rounding errors of what is before it decide
//   (floor of a sum that is
//         nearly whole, say), so that results can be compared by a tolerance
//   wild: everything, NaN and overflow too; to be compared by bits
enum class Temper : uint8_t { tame, wild };

Subject random_subject(uint64_t seed, Temper temper);

}  // namespace megjit::fuzz
