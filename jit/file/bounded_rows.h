// jit/file/bounded_rows.h -- BoundedRows: values of a dumped graph whose number of rows follows
// from the data. They are as long as they can be; a value beside them tells how many rows in front
// count, and only ops that keep rows apart may read them.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/trace/trace_function.h"

namespace megjit::jit {

class BoundedRows {
public:
    explicit BoundedRows(Graph& graph) : graph_(graph) {}

    // Adds nodes that give the results of such an op, or finds those that it added before.
    std::vector<ValueId> select(const OutsideOp& op, std::vector<ValueId> inputs,
                                const std::string& where);
    // The value that tells how many rows of the first bounded one count; nothing: none is bounded.
    std::optional<ValueId> count_of(std::span<const ValueId> values) const;

    // Fits the attributes of a recorded call to operands some of which are bounded. It returns
    // false and changes nothing where the call does not keep their rows apart. `recorded`,
    // `result`: types that its operands and its first result had.
    bool fit(Node& node, std::span<const Type> recorded, const Type& result) const;
    void note(std::span<const ValueId> outputs, ValueId count);

private:
    bool keeps_rows(const Node& node, std::span<const Type> recorded, const Type& result) const;

    struct Made {
        const OpDef* op;
        Attrs attrs;
        std::vector<ValueId> inputs, outputs;
    };
    Graph& graph_;
    std::vector<Made> made_;
    std::unordered_map<ValueId, ValueId> counts_;  // by value
};

}  // namespace megjit::jit
