// jit/ -- turns a traced function into a program and keeps it for the next call.
// In: ops as they are dispatched. Out: a Program that runs without allocating.
// Knows runtime/, memory/ and codegen/; never names a backend.
//
// jit/step/graph.h -- Graph: one traced segment in SSA form. Nodes stand in an order in which they
// can run, and refer to values by id. A pass builds a new Graph and keeps all its findings there.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_ir.h"
#include "runtime/core/device.h"
#include "runtime/core/op.h"
#include "runtime/core/tensor.h"
#include "runtime/ops/known.h"

namespace megjit::jit {

namespace ops = runtime::ops;
using runtime::Attrs;
using runtime::OpDef;
using runtime::TensorRef;
using runtime::Type;

enum class NodeId : uint32_t {};
enum class ValueId : uint32_t {};
template <class Id>
constexpr size_t at(Id id) {
    return static_cast<size_t>(id);
}

enum class NodeKind : uint8_t {
    input,  // slot `slot` of the segment: arguments, parameters, values of earlier segments
    constant,  // `constant`, baked into the program
    op,  // one application of `op`
    fused,  // one generated kernel; `ops` names what it stands for
};

// What the user says of recomputation.
struct Marks {
    bool stays = false;  // keep(x)
    bool is_offloaded = false;  // offload(x)
    bool leaves_region = false;  // is a result of recompute(fn)
    uint32_t region = 0;  // made in this call of recompute(fn); 0: in none
    bool operator==(const Marks&) const = default;
};

// What a node does in a training step. The pictures of its memory show this; no pass asks.
struct Role {
    bool is_backward = false;  // recorded while gradients were taken
    bool is_recomputed = false;  // another run of what has run before
};

struct Node {
    NodeKind kind = NodeKind::op;
    const OpDef* op = nullptr;
    Attrs attrs = {};
    std::vector<ValueId> inputs = {};
    std::vector<ValueId> outputs = {};
    int slot = -1;
    TensorRef constant = {};
    std::shared_ptr<const codegen::BoundKernel> kernel = {};
    // Further launches of the same kernel; the operands of all launches follow each other.
    std::vector<codegen::LaunchShape> more_launches = {};
    std::vector<std::string> ops = {};
    std::string choice = {};  // of a product: why a library or a kernel computes it, for reports
    std::string where = {};  // "model.py:41", the user's line
    // Names by output, as far as there are any: "layers.3.weight" of an input,
    // "layers.3.weight.grad" of an op.
    std::vector<std::string> names = {};
    Marks marks = {};
    Role role = {};
};

std::vector<codegen::LaunchShape> launches_of(const Node& fused);

struct Value {
    Type type;
    NodeId producer = {};
};

struct KeptCopy;

class Graph {
public:
    ValueId add_input(const Type& type, int slot, std::string name = {});
    ValueId add_constant(TensorRef tensor);
    // Adds a node; its outputs get the given types. Constants are kept on the host.
    std::vector<ValueId> add(Node node, std::span<const Type> outputs);
    // Adds an op, whose results have the types that it infers.
    std::vector<ValueId> add(Node op);
    // Adds an op that has the line, the marks and the role of `like`, which it stands for.
    std::vector<ValueId> add_op(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs,
                                const Node& like);
    ValueId make(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, const Node& like) {
        return add_op(op, std::move(inputs), std::move(attrs), like)[0];  // its only result
    }

    const std::vector<Node>& nodes() const { return nodes_; }
    const Node& node(NodeId id) const { return nodes_[at(id)]; }
    const Value& value(ValueId id) const { return values_[at(id)]; }
    const Type& type(ValueId id) const { return values_[at(id)].type; }
    const Node& producer(ValueId id) const { return node(value(id).producer); }
    std::string name(ValueId id) const;  // by Node::names, or ""
    void set_name(ValueId id, std::string name);
    size_t value_count() const { return values_.size(); }
    std::vector<Type> types(std::span<const ValueId> ids) const;

    void reserve(const Graph& like);  // room for about as many nodes
    Marks& marks_of(NodeId id) { return nodes_[at(id)].marks; }  // set after the node was added

    // Where it computes: the host's device, unless another was set.
    runtime::Device& device() const;
    void set_device(runtime::Device& device) { device_ = &device; }

    std::vector<ValueId> outputs;  // in the caller's order; a value may stand twice

    // Computes from the caller's slots what the inputs in the slots after them hold: once for the
    // tensors at hand, not in each call. Null: there are no such inputs.
    std::shared_ptr<const Graph> prologue;

    // Inputs in the slots after those, and outputs after the caller's, that it knows nothing of.
    std::vector<KeptCopy> copies;

private:
    std::vector<Node> nodes_;
    std::vector<Value> values_;
    runtime::Device* device_ = nullptr;
};

// A copy in halves of a value that the caller gives and the graph replaces. It is written with the
// value's successor, in the same place, and read by the next run.
struct KeptCopy {
    int slot = -1;  // holds the copy
    int of = -1;  // the slot of the value
    size_t successor = 0;  // the output that replaces the value
    size_t written = 0;  // the output that is the successor's copy, without what stays the same
    std::shared_ptr<const Graph> maker;  // makes the copy of the value, where there is none yet
    const Type& type() const { return maker->type(maker->outputs[0]); }
};

// Copies a graph node by node. A pass subclasses it, or drives it by hand: `map` gives the new id
// of an old value once its producer was copied or replaced.
class Rewriter {
public:
    explicit Rewriter(const Graph& from) : from(from), map_(from.value_count()) {
        to.set_device(from.device());
        to.reserve(from);
    }
    void copy(const Node& node);
    void replace(ValueId old, ValueId fresh) { map_[at(old)] = fresh; }
    ValueId map(ValueId old) const { return *map_[at(old)]; }
    std::vector<ValueId> map(std::span<const ValueId> old) const;
    Graph finish();  // maps the outputs

    const Graph& from;
    Graph to;

private:
    std::vector<std::optional<ValueId>> map_;
};

// Text form; print and parse are inverses (the user's lines are comments and are not kept).
//   %0: f32[8, 64] = input 0
//   %1: f32[] = const 2
//   %2: f32[8, 64] = mul %0 %1        # model.py:41
//   return %2
std::string print(const Graph& graph);
Graph parse_graph(std::string_view text);  // UserError that names the line
Graph parse_plain_graph(
    std::string_view text);  // takes inputs and ops only: such text asks for no memory of its own

// For Graphviz; fused kernels are boxes of their own colour.
std::string to_dot(const Graph& graph);
// One page without a server: a row for each node, with links from operands to where they are made.
std::string to_html(const Graph& graph, std::string_view title);

// The verifier: "" or one sentence. Every operand stands before its use, types are what inference
// gives, slots are unique, kernels are sound.
std::string fault_of(const Graph& graph);

// Leaves out nodes that no output needs.
Graph drop_dead(Graph graph);
// The first node that no output needs; null: there is none.
const Node* dead_node(const Graph& graph);

// The meaning of a graph: eager kernels compute each node, the kernel interpreter a fused one.
std::vector<TensorRef> interpret(const Graph& graph, std::span<const TensorRef> inputs);

}  // namespace megjit::jit
