// jit/file/export.h -- from a record to a Model that can be written: one graph over all segments,
// tensors from outside as constants or states, every op with the name that the API promises.
#pragma once

#include <string>
#include <vector>

#include "jit/file/file_states.h"
#include "jit/file/graph_file.h"
#include "jit/trace/trace_function.h"

namespace megjit::jit {

struct ExportOptions {
    std::vector<std::string> inputs = {};  // by argument
    std::vector<std::string> outputs = {};  // by result; empty: the names of what made them
    bool optimize = true;  // whole-graph passes, without fusion
    bool half_storage = false;  // values between ops are stored as float16 and computed as float32
    int keep_value_names = 1;  // 0 none, 1 outputs, 2 all
    bool keep_op_names = false;
    int opt_level = 2;  // the level that the function was traced with
    bool exact = false;  // numerics="exact"
    const FileStates* states = nullptr;  // the file's; null: a file has only constants
    // Updates are left out, keys of random ops are constants, and a batch that was read as a number
    // is not noted.
    bool allows_effects = false;
};

// "ADD" and "TRUE_DIV" for element-wise ops, "MatrixMul" and the like for others.
std::string type_name_of(const OpDef& op);

// Names travel through the passes in Node::where.
struct NotedName {
    std::string node = {}, variable = {}, line = {};  // line: the user's
    bool is_parameter = false;
    std::string where() const;
    static NotedName from(const std::string& where);  // empty for what `where()` did not write
};

Model export_model(const Version& version, const ExportOptions& options);

// The last steps of a dump: passes, and the names that stand in Node::where. `model` has graph,
// inputs and outputs.
Model finish_model(Model model, const ExportOptions& options);

// The part of a model that computes `outputs` (positions in Model::outputs; nothing: all of them),
// and counts and what replaces states, on that device.
Step step_for(const Model& model, runtime::Device& device,
              const std::optional<std::vector<size_t>>& outputs = {});

// Throws UserError where outputs are bounded, for callers that take fixed shapes.
void refuse_bounds(const Model& function);

// A function of a file with its states as constants. It throws UserError where the function
// replaces a state or draws keys, and where outputs are bounded.
Model without_states(const ModelFile& file, const Model& function);

}  // namespace megjit::jit
