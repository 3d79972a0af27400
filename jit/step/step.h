// jit/step/step.h -- Step: a graph with an interface, which says of each slot what a run is given
// there, and of each output what becomes of it. Passes, plans and programs ask it and nothing else.
#pragma once

#include <vector>

#include "jit/graph.h"

namespace megjit::jit {

using RecordId = uint32_t;  // of a value in a record

// What a run is given in a slot.
struct Input {
    enum class Kind : uint8_t {
        argument,  // the caller's, another one in each call
        captured,  // a tensor from outside that the step reads: the same one in most calls
        state,  // a tensor from outside that the step also replaces
        key,  // drawn from a random generator in each call
        option,  // a number that may change from call to call
        constant,  // what the body makes of host data, by value
        made,  // by an earlier segment of the record
    } kind = Kind::argument;
    bool is_released = false;  // the caller gives its last reference: a program may write over it
    bool is_trained = false;  // backward computes its gradient
    RecordId value = 0;  // that it stands for, where the step is of a record
    TensorRef held = {};  // for dump: the value that it had when the step was recorded

    bool is_from_outside() const { return kind != Kind::argument && kind != Kind::made; }
    // The run replaces it, and computes no gradient for it.
    bool is_state() const { return (kind == Kind::state || is_released) && !is_trained; }
    // The same tensor in most calls, so that what is computed of it alone can be kept.
    bool is_fixed() const {
        return (kind == Kind::captured || kind == Kind::constant) && !is_released;
    }
};

struct Output {
    int replaces = -1;  // the slot whose value it is from then on, and which it holds if the run
                        // fails; -1: none, as of complex numbers, which no guard selects
    RecordId value = 0;  // as of an input
    bool operator==(const Output&) const = default;
};

struct Step {
    Graph graph = {};  // as it was recorded
    std::vector<Input> inputs = {};  // by slot; those that are not said are arguments
    std::vector<Output> outputs = {};  // by output of the graph; those behind them are results

    Input input(int slot) const {
        const auto place = static_cast<size_t>(slot);
        return place < inputs.size() ? inputs[place] : Input();
    }
};

}  // namespace megjit::jit
