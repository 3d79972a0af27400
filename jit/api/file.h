// jit/api/file.h -- File: the functions of a dumped file, and the states that they share and keep
// from run to run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/imported_kernels.h"
#include "jit/file/graph_file.h"
#include "jit/run/bound_weights.h"
#include "jit/run/program.h"

namespace megjit::api {

using runtime::TensorRef;
using runtime::Type;

// What a caller must know of an input, output, parameter or state.
struct Port {
    std::string name;
    Type type;
    int count = -1;  // index of the count that tells a bounded output's rows
};

// Finds the port; else throws a UserError that lists the names.
size_t position_of(std::string_view kind, const std::vector<Port>& ports, std::string_view name);

class Model;

// Any thread may use it: runs that change states take turns, and readers wait for them.
class File {
public:
    explicit File(jit::ModelFile file);

    // "": the first. UserError for a name that the file does not have.
    const std::shared_ptr<const jit::Model>& function(std::string_view name) const;
    const std::vector<std::shared_ptr<const jit::Model>>& functions() const {
        return file_.functions;
    }

    const std::vector<Port>& states() const { return ports_; }
    // UserError for a name that the file does not have.
    size_t state(std::string_view name) const;
    TensorRef value(size_t state);
    void set(size_t state, const TensorRef& value);  // copies it; UserError for another type
    std::vector<jit::State> states_on_host();  // their present values, row-major

    // Makes its states constants, as they are now. UserError like that of jit::without_states.
    jit::Model without_states(std::string_view function);
    // From here on this process uses the compiled kernels of a packaged file. They are code that
    // will run, so trust their source.
    void trust_kernels() const { codegen::add_packaged_kernels(file_.kernels); }
    // `python -m megengine package` adds these, not beside runs: kernels; weights and the plan that
    // a model of this file has made; and the level and the limit that they are made for, which the
    // functions have from here on.
    void add_kernels(std::vector<codegen::CacheEntry> kernels);
    void add_package_of(const Model& model);
    void set_options(int opt_level, uint64_t memory_limit);
    const std::shared_ptr<const jit::PackedWeights>& packed() const { return packed_; }

    // Writes functions and present states, as from_bytes reads them.
    std::string to_bytes();
    void save(const std::filesystem::path& path);  // all of it, or an error and the old file

    // Runs a function on inputs and results of the caller's, as Program::run takes them, with the
    // counts after them. Where it throws, states are as they were.
    void run(const jit::Model& function, jit::Program& program, std::span<TensorRef> given,
             std::span<TensorRef> results);

private:
    struct Lent {  // by slot
        std::vector<TensorRef> inputs, generators;
    };
    Lent lend(const jit::Model& function, runtime::Device& device);
    void take_back(const jit::Model& function, const Lent& lent);
    void change(size_t function, const std::function<void(jit::Model&)>& how);

    jit::ModelFile file_;  // its states have their present values
    std::vector<Port> ports_;
    std::shared_ptr<const jit::PackedWeights> packed_;
    runtime::Turn turn_{"a run that changes a model's state"};  // its holder has the values
};

// UserError (runtime) where the file cannot be read.
std::shared_ptr<File> read_model(const std::filesystem::path& path);

}  // namespace megjit::api
