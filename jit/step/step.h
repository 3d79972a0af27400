// jit/step/step.h -- Step: a graph with an interface, which says what a run is given in each
// slot, and what becomes of each output. Passes, plans and programs ask it and nothing else.
#pragma once

#include <vector>

#include "jit/step/graph.h"

namespace megjit::jit {

using RecordId = ValueId;  // names a value of a record's graph
inline constexpr RecordId kNoValue{UINT32_MAX};

// A number that the body makes of host data is at most so large. On a device that is not the host
// it lies once for all calls (python/bindings/convert.cpp): no run writes over it.
inline constexpr size_t kNumberBytes = 8;

// A run is given a value in each slot.
struct Input {
    enum class Kind : uint8_t {
        argument,  // the caller's, another one in each call
        captured,  // a tensor from outside that the step reads: the same one in most calls
        state,  // a tensor from outside that the step also replaces
        key,  // drawn from a random generator in each call
        option,  // a number that may change from call to call
        constant,  // what the body makes of host data, by value
        made,  // what an earlier segment of the record made
    } kind = Kind::argument;
    bool is_released = false;  // the caller gives its last reference: a program may write over it
    bool is_lent = false;  // another library owns its memory, to which a program may write
    bool is_trained = false;  // backward computes its gradient
    RecordId value = {};  // stands for it in the record that the step is taken from
    TensorRef held = {};  // the value that it had when it was recorded, where a file may need it
    uint32_t state = 0;  // in a file: which of its states the input is, or is drawn from

    bool is_from_outside() const { return kind != Kind::argument && kind != Kind::made; }
    // The run replaces the input, and computes no gradient for it.
    bool is_state() const { return (kind == Kind::state || is_released) && !is_trained; }
    // The input is the same tensor in most calls, so that what is computed of it alone can be kept.
    // A trained input changes before the next call, whoever updates it.
    bool is_fixed() const {
        return (kind == Kind::captured || kind == Kind::constant) && !is_released && !is_trained;
    }
};

// A tensor, option or generator from outside, with what holds it from call to call: a recording for
// dump lists these, and a file keeps each as a constant or as a state. What is only written has no
// value in the record.
struct Held : Input {
    const void* holder = nullptr;  // an object of the front end; one state has one in all functions
    bool is_grad = false;  // it is the gradient of the holder
    std::string name = {};  // "" where none was given
    RecordId becomes = kNoValue;  // takes its place
    bool is_held_as(const Held& other) const {
        return holder == other.holder && is_grad == other.is_grad;
    }
};

// An output of the graph. In a file outputs stand in the order of their kinds.
struct Output {
    enum class Kind : uint8_t {
        result,  // the caller's
        count,  // says how many rows of results matter, i32[]
        state,  // the next value of a state; states that are replaced stand in the order of slots
    } kind = Kind::result;
    int replaces = -1;  // the slot whose value it is from then on, and which it holds if the run
                        // fails; -1: none, as of complex numbers, which no guard selects
    int counted_by = -1;  // the count that says how many of its rows matter; -1: all rows do
    RecordId value = {};  // what it gives, in the record that the step is taken from
    bool operator==(const Output&) const = default;
};

struct Step {
    Graph graph = {};  // as it was recorded
    std::vector<Input> inputs = {};  // by slot; slots that are not listed are arguments
    std::vector<Output> outputs = {};  // by output of the graph; unlisted outputs are results
    size_t held_bytes = 0;  // what the call holds for its other steps while this one runs

    Input input(int slot) const {
        const auto place = static_cast<size_t>(slot);
        return place < inputs.size() ? inputs[place] : Input();
    }
};

}  // namespace megjit::jit
