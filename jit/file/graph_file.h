// jit/file/graph_file.h -- graphs as a file: flat, checked before anything is allocated.
//
//   header     magic "MEGJITGF", schema version, flags (0), bytes of all, checksum of the rest
//   states     of each its name, what it is, and its value, a constant
//   functions  of each: name, options of the record, whether its numbers follow the batch, limit
//   of memory and plan of a packaged one; the graph in text form (jit/step/graph.h), states
//              and constants as inputs after the real ones; names of inputs, outputs, nodes,
//              values; which values are parameters; which states and constants it has; which
//              outputs are bounded; metadata and test cases, JSON and bytes of the front end, which
//              this file does not look into
//   constants  sizes, then raw bytes, each at a multiple of 64
//   kernels    of a packaged file, compiled for one or more kinds of CPUs: keys and objects of
//              codegen/disk_cache.h, code that nothing here looks into or runs
//   weights    of a packaged file, as programs pack them: keys of jit/run/bound_weights.h and
//   sizes,
//              then raw bytes, each at a multiple of 64
//
// Containers may follow one another in one file. Numbers are little endian. Schemas 1 to 4 are
// read but no longer written: 4 does not say whether the batch follows, 3 has no bounded outputs, 2
// also no weights, limits and plans and another checksum, 1 also one function and no state, and
// metadata in pickles.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/disk_cache.h"
#include "jit/run/bound_weights.h"
#include "jit/step/step.h"

namespace megjit::jit {

// What functions keep from run to run: a tensor, or the next key of a random generator, from which
// an input that holds one or several keys is drawn.
struct State {
    std::string name;
    bool is_generator = false;
    TensorRef value = {};
};

// One function: a step in which nothing is fused. Its inputs are the caller's, and after them
// states, or keys that are drawn from them.
struct Model : Step {
    std::vector<std::string> input_names = {}, output_names = {};  // of the caller's
    std::vector<std::string> node_names = {};  // by node; "" where it was not kept
    std::vector<std::string> value_names = {};  // by value
    std::vector<std::string> node_lines = {};  // by node: the user's line; not written to files
    std::vector<ValueId> params = {};  // constants that were tensors of the program
    std::string name = {};
    int opt_level = 2;  // of the record
    bool exact = false;  // numerics="exact"
    // The recording knew what extents in attributes and constants come from, and the graph says it
    // (fixed_batch): with another batch these extents follow (runtime/ops/refit.h).
    bool follows_batch = false;
    // A packaged function has these: the bytes of a call (0: none), and the order of steps that was
    // found for them.
    uint64_t memory_limit = 0;
    std::vector<uint32_t> order = {};
    std::string metadata = {};
    std::string cases = {};  // test cases, as the front end wrote them

    size_t constant_bytes() const;
    std::vector<Type> input_types() const;  // also those of states
    std::span<const Input> states() const {
        return std::span(inputs).subspan(std::min(inputs.size(), input_names.size()));
    }
    size_t count(Output::Kind kind) const {
        return static_cast<size_t>(std::ranges::count(outputs, kind, &Output::kind));
    }
    bool replaces_states() const { return count(Output::Kind::state) > 0; }
};

// Functions that share states.
struct ModelFile {
    std::vector<std::shared_ptr<const Model>> functions;
    std::vector<State> states = {};
    std::vector<codegen::CacheEntry> kernels = {};
    std::vector<PackedWeight> weights = {};

    std::vector<TensorRef> constants() const;  // of all functions, as their nodes stand
};

std::string to_bytes(const ModelFile& file);

// The container at the start of `bytes`; `used` becomes its size. With `keep`, which holds the
// bytes where they are, constants stay there and are not copied. UserError (runtime) with
// `file_name` for bytes that are truncated, damaged, of a later schema, or do not describe sound
// graphs.
ModelFile from_bytes(std::string_view bytes, std::string_view file_name, size_t* used = nullptr,
                     const std::shared_ptr<void>& keep = nullptr);

}  // namespace megjit::jit
