// jit/graph_file.h -- a graph as a file: flat, without code, checked before anything is allocated.
//
//   header     magic "MEGJITGF", schema version, flags (0), bytes of all, checksum of the rest
//   text       the graph in text form (jit/graph.h), constants as inputs behind the real ones
//   names      of inputs, outputs, nodes, values; which values are parameters
//   metadata   bytes of the front end, which this file does not look into
//   constants  sizes, then raw bytes, each at a multiple of 64
//
// Containers may follow one another in one file. Numbers are little endian.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jit/graph.h"

namespace megjit::jit {

struct Model {
    Graph graph;  // slot i is inputs[i]; nothing is fused
    std::vector<std::string> inputs = {}, outputs = {};
    std::vector<std::string> node_names = {};  // by node; "" where it was not kept
    std::vector<std::string> value_names = {};  // by value
    std::vector<std::string> node_lines = {};  // by node: the user's line; not written to files
    std::vector<ValueId> params = {};  // constants that were tensors of the program
    std::string metadata = {};
    std::string cases = {};  // test cases, as the front end wrote them

    size_t constant_bytes() const;
};

std::string to_bytes(const Model& model);

// The container at the start of `bytes`; `used` becomes its size. UserError (runtime) with
// `file_name` for bytes that are truncated, damaged, of another schema, or do not describe a sound
// graph.
Model from_bytes(std::string_view bytes, std::string_view file_name, size_t* used = nullptr);

uint64_t checksum(std::string_view bytes);

}  // namespace megjit::jit
