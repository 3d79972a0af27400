// jit/plan/failure_rule.h -- FailureRule: what a call that fails leaves to its caller. A step may
// fail on its operands' values, or for what other processes do; the inputs that the call was to
// replace must then be whole, since what the body issued is computed again from them, or they are
// all that is left.
//
// Where the device's stream stops at a failure, nothing is written over an input until the last
// step that may fail. Where it goes on (on wrong values), each update sees the failure: it takes
// the input instead of the new value (passes/guard_updates.cpp), and nothing but its result may lie
// on that input.
#pragma once

#include <optional>
#include <unordered_map>

#include "jit/step/subgraph.h"
#include "runtime/core/device.h"

namespace megjit::jit {

// Finds the nodes that may be the first to fail, in the order in which they run. A node that checks
// places alone is not one of them where each was checked before, within no larger extent, or is
// known (known_places.h).
class FirstFailures {
public:
    explicit FirstFailures(const Graph& graph) : graph_(graph) {}
    bool may_be(const Node& node);  // `node`: the next one

private:
    const Graph& graph_;
    std::unordered_map<ValueId, int64_t> within_;  // places: the smallest extent so far
};

class FailureRule {
public:
    explicit FailureRule(runtime::Device& device)
        : guards_updates_(!device.stream().stops_at_failure()) {}

    bool guards_updates() const { return guards_updates_; }

    // The last of `count` steps before which nothing may be written over an input; nothing where no
    // step may fail, or updates are guarded. (A step that fails on values has written nothing; an
    // exchange may have.) `node_of` gives a step's Node.
    template <class NodeOf>
    std::optional<size_t> keeps_inputs_until(const Graph& graph, size_t count,
                                             const NodeOf& node_of) const {
        std::optional<size_t> last;
        if (guards_updates_) return last;
        FirstFailures failures(graph);
        for (size_t step = 0; step < count; ++step)
            if (failures.may_be(node_of(step))) last = step;
        return last;
    }

private:
    bool guards_updates_ = false;
};

}  // namespace megjit::jit
