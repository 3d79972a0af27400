// jit/step/host_copy.h -- the two ops by which a value leaves a device's memory and comes back: to
// the host's memory and from it (passes/offload.cpp); where the device's memory is the host's, to a
// file and from it (passes/spill.cpp). Only passes use them: they are not in the registry, and no
// device prepares them.
#pragma once

#include <memory>

#include "jit/step/graph.h"

namespace megjit::jit {

const OpDef& to_host();  // the result lies outside of the device's memory; only from_host reads it
const OpDef& from_host();
inline bool is_host_copy(const Node& node) {
    return node.op == &to_host() || node.op == &from_host();
}

// By value: does it lie outside from call to call, as an input that from_host alone reads, or an
// output that to_host makes?
std::vector<bool> lies_outside(const Graph& graph);

// Runs either op, on the stream.
std::shared_ptr<const runtime::Executable> host_copy(const OpDef& op, size_t bytes);

}  // namespace megjit::jit
