// jit/bound_weights.h -- BoundWeights: what the prologues of a traced function's programs have
// computed and packed, and its constants on a device. Versions of several shapes pack the same
// weights alike: each is kept once, as long as a program holds it.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "jit/graph.h"
#include "runtime/host/mutex.h"

namespace megjit::jit {

class BoundWeights {
public:
    struct Values {
        std::vector<TensorRef> outputs;  // of the prologue, each with its data
        size_t fresh_bytes = 0;  // of those that no program held before
    };
    // What the prologue gives for these tensors, by slot: a tensor never changes.
    Values get(const Graph& prologue, std::span<const TensorRef> inputs);

    // The value itself where the device can read it, or a copy there.
    TensorRef readable_on(runtime::Device& device, const TensorRef& constant);

    void release_unused();  // what no program holds any more

private:
    runtime::Mutex mutex_{"the bound weights of a function"};
    std::unordered_map<std::string, TensorRef> known_;  // by what it is computed from, and how
};

}  // namespace megjit::jit
