// jit/plan/passes/fusion_group.h -- groups of nodes over one iteration space: what fuse.cpp makes,
// fuse_siblings.cpp joins, fuse_repeats.cpp frees of each other's values and fuse_emit.cpp turns
// into kernels.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "jit/plan/passes/map_rows.h"
#include "jit/plan/passes/passes.h"
#include "jit/plan/passes/product_choice.h"

namespace megjit::jit {

constexpr int kNoGroup = -1;
constexpr size_t kMaxOps = 64, kMaxOperands = 28;  // limits of a group

// How a value of a group lies in its space.
enum class Form : uint8_t {
    element,  // one for every index: the group's shape
    row_keep,  // one a row: the shape with 1 for each reduced axis
    row_drop,  // one a row: the shape without the reduced axes
    weights,  // one for every element of the second factor of its contraction
};

struct Group {
    runtime::Shape shape;
    runtime::Layout layout = runtime::Layout::row_major;
    uint32_t reduced = 0;  // mask of the axes that its reductions run over; 0: element-wise
    int level = 0;
    std::vector<int> readers = {};  // groups that read it; kNoGroup: nodes without one
    std::vector<NodeId> nodes = {};  // in recorded order
    std::vector<ValueId> operands = {};  // distinct, from outside
    NodeId position = {};  // where in the recorded order it runs
    int era = 0;  // how many other ops are recorded before it
    int heavy = 0;  // nodes whose code is long and that need no reduction of the group
    bool contracts = false;  // it holds one contraction, and ops of its results
    codegen::Lanes lanes = {};  // those of a contraction's kernel
    bool makes_weights = false;  // it begins with the ops that make its weights

    runtime::Shape row_shape(Form form) const;
    // Is a row_drop operand that NumPy's rule broadcasts to the shape the row's own value? (It is
    // where the reduced axes come first; where they do not, it would be walked along other axes.)
    bool drop_broadcasts_as_row() const;
};

// What kind of part a node plays in a kernel.
enum class Part : uint8_t { none, elementwise, broadcast, reduction, reshape };
Part part_of(const Node& node);
// These describe a reduction: the shape of all that it takes, and a mask over its axes.
runtime::Shape reduced_space(const Graph& graph, const Node& node);
uint32_t reduced_axes(const Graph& graph, const Node& node);
// Describes a node whose op is a contraction.
runtime::Contraction contraction_of(const Graph& graph, const Node& node);
// Is it a product of row-major float32 or halves, as generated kernels multiply them?
bool is_product_of_floats(const Graph& graph, const Node& node);
// Readers by value; to be a result of the graph counts as one.
std::vector<uint32_t> reader_counts(const Graph& graph);
// The ops that make a product's weights from fewer bytes (8 bits, halves). A kernel that makes the
// weights as it reads them saves their way through memory, which for few rows is all that takes
// time.
struct WeightMakers {
    std::vector<NodeId> nodes;  // in their order; none where it does not pay
    codegen::Lanes lanes = {};  // the kernel's: the last axis for few rows, else panels
    bool are_for_few_rows() const { return !nodes.empty() && lanes == codegen::Lanes::last; }
};
WeightMakers makers_of_weights(const Graph& graph, const PipelineOptions& options,
                               std::span<const uint32_t> readers, const Node& node);

// The groups of a graph.
struct Grouping {
    Grouping(const Graph& graph, const PipelineOptions& options);

    const Graph& graph;
    const PipelineOptions& options;
    std::vector<int> group_of;  // by node
    std::vector<int> own_level;  // by node without a group: one above all its operands
    std::vector<Form> form_of;  // by node, for nodes with a group
    std::vector<ProductChoice> choices;  // by node, for products that an element-wise op reads
    std::vector<Group> groups;  // those that others absorbed have no nodes
    // By value, set by find_escaping(): a node outside of its group (a node without any group)
    // reads it, or the graph returns it.
    std::vector<bool> escapes, stored;

    Group& group(int g) { return groups[static_cast<size_t>(g)]; }
    const Group& group(int g) const { return groups[static_cast<size_t>(g)]; }
    int group_of_value(ValueId id) const { return group_of[at(graph.value(id).producer)]; }
    // A product that no library of the GPU computes is a kernel without other ops, too.
    bool generates_alone(const Node& product) const;
    int level_of(NodeId id) const;
    // Where a kernel reads the rows of a value that is not stored by itself.
    std::optional<MappedRows> rows_of(ValueId id) const {
        return stored[at(id)] ? std::nullopt : mapped_rows(graph, id);
    }
    // Returns the operands of both as one group.
    std::vector<ValueId> joint_operands(int a, int b) const;
    // Group b takes over the nodes of a.
    void absorb(int a, int b);
    void find_escaping();
};

// Joins groups that read or feed the same and depend on each other in no way.
void join_siblings(Grouping& grouping);

// The graph where groups compute again what others would write for them alone; nothing where none
// does. (fuse_repeats.cpp)
std::optional<Graph> with_repeats(const Grouping& grouping);
// What the groups' kernels read and write.
size_t bytes_of_kernels(const Grouping& grouping);

// The graph with a kernel for each group; nodes of a group for which a kernel would be no better
// are as they were.
Graph emit(const Grouping& grouping);

}  // namespace megjit::jit
