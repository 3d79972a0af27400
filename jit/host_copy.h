// jit/host_copy.h -- the two ops by which a value leaves a device's memory and comes back
// (passes/offload.cpp). Only passes use them: they are not in the registry, and no device prepares
// them.
#pragma once

#include <memory>

#include "jit/graph.h"

namespace megjit::jit {

const OpDef& to_host();  // the result lies in the host's memory; only from_host reads it
const OpDef& from_host();
inline bool is_host_copy(const Node& node) {
    return node.op == &to_host() || node.op == &from_host();
}

// What a node and a transfer of so many bytes take by the device's speeds.
double seconds_of(const Graph& graph, const Node& node);
double transfer_seconds(const runtime::Device& device, size_t bytes);

// Runs either, on the stream.
std::shared_ptr<const runtime::Executable> host_copy(const OpDef& op, size_t bytes);

}  // namespace megjit::jit
