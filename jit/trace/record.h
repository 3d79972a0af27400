// jit/trace/record.h -- Record: what one recording call saw, in order. A later call is matched
// against it; it is compiled segment by segment.
//
// A segment ends where the host needs a value: the value was read, or ops ran outside of the graph
// (exclude_from_trace, ops whose shape depends on data). A trace without host reads has one
// segment.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/step/step.h"

namespace megjit::jit {

inline constexpr uint32_t kNoSlot = UINT32_MAX;

// What a record knows of a value of its graph beside the type and what computes it.
struct RecordedValue {
    runtime::Device* device = nullptr;
    uint32_t slot = kNoSlot;  // of a tensor from outside: index into Step::inputs
    TensorRef tensor = {};  // of constants, and of what ops compute of constants alone
    bool is_output = false;  // alive when the call ended, or at a barrier: its data must be there
};

// A backward pass is replayed as one event: its ops follow from those before it.
struct RecordedBackward {
    std::vector<RecordId> ys = {}, dys = {}, wanted = {};
    std::vector<std::string> groups = {};  // of processes that add up gradients, by `wanted`
    std::vector<RecordId> grads = {};  // kNoValue: none
    uint32_t end_event = 0;  // the event after the last one that it issued
};

enum class EventKind : uint8_t { op, barrier, backward, variant };
struct Event {
    EventKind kind = EventKind::op;
    uint32_t index = 0;  // of the op's node, the backward pass or the segment that ends
    std::string text = {};  // barrier: the user's line; variant: what the next ops follow from
                            // beside their operands
};

// A step of the whole call. Its graph has ops as they were called, and the names that the program
// has given. What comes from outside, and what is equal in every call (a Python number or array),
// is an input of the graph, whose slot is the value's number. `inputs` are by slot of a call, the
// arguments first; `outputs` say which values take the place of what a slot had.
struct Record : Step {
    std::vector<RecordedValue> values;  // by value of the graph
    std::vector<RecordedBackward> backwards;
    std::vector<Event> events;
    bool needs_tapes = false;  // Python code runs in backward: it must run again in every call
    std::vector<uint32_t> segment_ends;  // by finished segment: number of nodes before its barrier

    const RecordedValue& operator[](RecordId id) const { return values[at(id)]; }
    RecordedValue& operator[](RecordId id) { return values[at(id)]; }
    bool is_computed(RecordId id) const { return graph.producer(id).kind == NodeKind::op; }
    bool is_from_outside(RecordId id) const { return values[at(id)].slot != kNoSlot; }
    bool is_constant(RecordId id) const { return !is_from_outside(id) && !is_computed(id); }
    // For tensors from outside.
    const Input& input(RecordId id) const { return inputs[values[at(id)].slot]; }
    Input& input(RecordId id) { return inputs[values[at(id)].slot]; }
    const Node& op_of(const Event& event) const { return graph.nodes()[event.index]; }

    size_t op_count() const;
    uint32_t segments() const { return static_cast<uint32_t>(segment_ends.size()) + 1; }
    uint32_t segment_of(RecordId value) const;  // where it is made, or read first
    std::span<const Node> segment(uint32_t index) const;  // its nodes

    // Tells whether the first `count` events of both say the same.
    bool same_prefix(const Record& other, uint32_t count) const;
    // The first `count` events with the values that they name, and the arguments.
    Record prefix(uint32_t count) const;
    // Marks what one segment makes and another reads; called once, when the record is complete.
    void mark_crossing_values();

private:
    bool same_value(const Record& other, RecordId id) const;
};

// Ops of segment `index`; its outputs are the values that are read later, by the host or by another
// segment. Inputs keep their names, and what gives the gradient of one has a name made of it.
Step extract_segment(const Record& record, uint32_t index);

}  // namespace megjit::jit
