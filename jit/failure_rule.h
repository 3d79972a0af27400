// jit/failure_rule.h -- FailureRule: what a call that fails leaves to its caller. A step may fail
// on its operands' values, or for what other processes do; the inputs that the call was to replace
// must then be whole, since what the body issued is computed again from them, or they are all that
// is left.
//
// Where the device's stream stops at a failure, nothing is written over an input until the last
// step that may fail. Where it goes on (on wrong values), each update sees the failure: it takes
// the input instead of the new value (passes/guard_updates.cpp), and nothing but its result may lie
// on that input.
#pragma once

#include <optional>

#include "jit/subgraph.h"
#include "runtime/core/device.h"

namespace megjit::jit {

class FailureRule {
public:
    explicit FailureRule(runtime::Device& device)
        : guards_updates_(!device.stream().stops_at_failure()) {}

    bool guards_updates() const { return guards_updates_; }

    // The last of `count` steps before which nothing may be written over an input; nothing where no
    // step may fail, or updates are guarded. (A step that fails on values has written nothing; an
    // exchange may have.) `node_of` gives a step's Node.
    template <class NodeOf>
    std::optional<size_t> keeps_inputs_until(size_t count, const NodeOf& node_of) const {
        if (guards_updates_) return {};
        for (size_t step = count; step-- > 0;)
            if (may_fail(node_of(step))) return step;
        return {};
    }

private:
    bool guards_updates_ = false;
};

}  // namespace megjit::jit
