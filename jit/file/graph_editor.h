// jit/file/graph_editor.h -- GraphEditor: a graph that is changed by its user, node by node. Ids
// stay; types are inferred again after each edit; an edit that fails leaves everything as it was.
// Ops on its placeholders extend it.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/file/export.h"
#include "jit/step/graph_tracer.h"

namespace megjit::jit {

using runtime::BatchChange;

struct EditedNode {
    Node node;
    std::string name = {};
    bool is_parameter = false;  // a constant that was a tensor of the program
    bool is_renamed = false;
    bool follows_batch = false;  // as Model::follows_batch
    std::vector<Type> operands = {};  // types that attributes and results are made for
    runtime::Device* device = nullptr;  // what variables say; a run has a device of its own
};

struct EditedValue {
    Type type;
    NodeId producer = {};
    std::string name = {};
};

class GraphEditor final : public runtime::Tracer, private GraphTracer {
public:
    // Variables say that they lie on `device`, unless they are told another one.
    explicit GraphEditor(runtime::Device& device = runtime::host_device());
    ~GraphEditor() override;

    uint64_t id() const { return id_; }

    // ---- growing
    ValueId add_input(const Type& type, const std::string& name, runtime::Device* device = nullptr);
    ValueId add_constant(TensorRef tensor, const std::string& name, bool is_parameter);
    std::vector<ValueId> add_op(const OpDef& op, const Attrs& attrs, std::vector<ValueId> inputs);
    // Adds a graph whose slot i is inputs[i]; returns its outputs. Names stand in Node::where
    // (noted_name).
    std::vector<ValueId> add_graph(const Graph& graph, std::span<const ValueId> inputs,
                                   bool follows_batch);
    std::vector<ValueId> add_model(const Model& model);

    // Ops on placeholders call these.
    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device& device) override;
    void on_read(runtime::Tensor& tensor) override;
    bool can_read(const runtime::Tensor&) const override { return false; }
    TensorRef placeholder(ValueId value) const;  // is linked to the value, has its type

    // ---- what belongs to the graph: all that its outputs are made of, as dump writes them
    const std::vector<ValueId>& outputs() const { return outputs_; }
    void set_outputs(std::vector<ValueId> outputs);

    // ---- edits; all or nothing. Readers of an old value read the new one, except nodes that
    // the new one is made from.
    using Replacements = std::map<ValueId, ValueId>;
    void replace(const Replacements& values);
    void set_operand(NodeId node, size_t operand, ValueId value);
    void set_constant(NodeId node, TensorRef tensor);
    // Each of `inputs` has `batch.from` in front now, and `batch.to` after the call.
    void reset_batch(std::span<const ValueId> inputs, BatchChange batch);
    // Copies what `values` are made of; the copies read replaced values, the originals stay.
    std::vector<ValueId> copy_with(std::span<const ValueId> values, const Replacements& replaced);

    // Adds the same values after the passes of opt_level 2, as nodes of their own.
    std::vector<ValueId> add_optimized(std::span<const ValueId> values);

    // ---- looking; nodes in an order in which they can run, constants and inputs directly before
    // their first reader
    std::vector<NodeId> order() const { return order({}); }
    std::vector<NodeId> order(std::span<const ValueId> of) const;  // {}: of the outputs
    const EditedNode& node(NodeId id) const { return nodes_.at(at(id)); }
    const EditedValue& value(ValueId id) const { return values_.at(at(id)); }
    // An input that was renamed as an operator is called so in `model`, else as its variable.
    void rename(NodeId node, std::string name);
    void rename(ValueId value, std::string name) { values_.at(at(value)).name = std::move(name); }

    // What `of` needs as a file or a program wants it. The names of inputs and outputs are those of
    // their values.
    Model model(std::span<const ValueId> of, const ExportOptions& options);
    // Computes a value that depends on no input. It throws UserError for others.
    TensorRef constant_value(ValueId value) const;

private:
    struct Extract {
        Graph graph;
        std::vector<ValueId> inputs = {};  // by slot
    };
    Extract extract(std::span<const ValueId> of) const;
    std::string fresh_name(const std::string& base);
    std::vector<ValueId> append(EditedNode node, std::span<const Type> types);
    ValueId capture(const TensorRef& tensor) override;
    std::vector<bool> ancestors(std::span<const ValueId> of) const;  // by node
    void promote_operands(NodeId node);
    void check_known(const EditedNode& node, BatchChange batch) const;
    bool follows_batch(std::span<const NodeId> nodes) const;
    void infer_again(std::span<const NodeId> nodes, BatchChange batch);
    [[noreturn]] void fail_to_read(ValueId value) const;
    template <class Edit>
    void all_or_nothing(Edit&& edit, BatchChange batch = {});

    runtime::Device& device_;
    std::vector<EditedNode> nodes_;
    std::vector<EditedValue> values_;
    std::vector<ValueId> outputs_;
    std::unordered_map<std::string, int> names_;  // the names that were given, with the next suffix
};

}  // namespace megjit::jit
