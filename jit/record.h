// jit/record.h -- Record: what one recording call saw, in order. A later call is matched against
// it; it is compiled segment by segment.
//
// A segment ends where the host needs a value: it was read, or ops ran outside of the graph
// (exclude_from_trace, ops whose shape depends on data). A trace without host reads has one
// segment.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/step/step.h"

namespace megjit::jit {

enum class Origin : uint8_t {
    op,  // made by a recorded op
    outside,  // a tensor from outside: argument, parameter, global, made on the host
    constant,  // a Python number or array used as an operand; equal in every call
};

// One extent of a value.
struct ExtentOf {
    RecordId value = 0;
    int axis = 0;
};

// An extent in the attributes of a recorded call comes from somewhere, which decides what becomes
// of it when the inputs have another batch (jit/batch_flow.h).
struct GivenExtent {
    enum class Kind : uint8_t {
        derived,  // of the operands' extents, by the op or the function that issued it
        written,  // a number of the program
        solved,  // what the others leave
        read,  // computed of extents, `of`
    } kind = Kind::derived;
    std::vector<ExtentOf> of = {};
    bool is_itself = false;  // read: it is that extent
};

struct RecordedValue {
    Type type = {};
    runtime::Device* device = nullptr;
    Origin origin = Origin::op;
    uint32_t slot = 0;  // outside: index into Record::inputs
    uint32_t segment = 0;  // op: the segment that computes it
    TensorRef tensor = {};  // constants, and op values that follow from constants alone
    std::optional<RecordId> extents_of = {};  // constants: they are the extents of this value
    std::vector<ExtentOf> computed_of = {};  // values that follow from extents alone: which ones
    bool is_extent = false;  // it is the one extent that it was computed of
    bool is_output = false;  // alive when the call ended, or at a barrier: its data must be there
};

struct RecordedOp {
    const OpDef* op = nullptr;
    Attrs attrs = {};
    std::vector<RecordId> inputs = {};
    std::vector<RecordId> outputs = {};
    std::string where = {};  // "train.py:41 in forward"
    Marks marks = {};
    Role role = {};
    std::vector<GivenExtent> given =
        {};  // by axis; empty: derived. Kept with capture_as_const only
    std::string scope =
        {};  // path of the module that issued it, for dump; kept with capture_as_const only
};

// A backward pass is replayed as one event: its ops follow from those before it.
struct RecordedBackward {
    std::vector<RecordId> ys = {}, dys = {}, wanted = {};
    std::vector<std::string> groups = {};  // of processes that add up gradients, by `wanted`
    std::vector<int64_t> grads = {};  // RecordId, or -1 for none
    uint32_t end_event = 0;  // the event behind the last one that it issued
    uint32_t end_op = 0;
};

enum class EventKind : uint8_t { op, barrier, backward, variant };
struct Event {
    EventKind kind = EventKind::op;
    uint32_t index = 0;  // into ops, backwards or variants; barrier: the number of the segment that
                         // ends
    std::string where = {};
};

struct Record {
    std::vector<RecordedValue> values;
    std::vector<RecordedOp> ops;
    std::vector<RecordedBackward> backwards;
    std::vector<std::string> variants;  // what the ops behind it follow from beside the operands
    std::vector<Event> events;
    std::vector<Input> inputs;  // by slot, what came from outside: the arguments first
    std::vector<RecordId> results;  // what the body returned, flat; kept with capture_as_const only
    std::vector<Output> updates;  // values that take the place of what a slot had
    uint32_t segments = 1;
    bool needs_tapes = false;  // Python code runs in backward: it must run again in every call
    std::vector<uint32_t> segment_end_op;  // by finished segment: number of ops before its barrier

    // Tells whether the first `count` events of both say the same.
    bool same_prefix(const Record& other, uint32_t count) const;
    // The first `count` events with the values that they name, and the arguments.
    Record prefix(uint32_t count) const;
    // Marks what one segment makes and another reads; called once, when the record is complete.
    void mark_crossing_values();
};

using ValueNames = std::unordered_map<RecordId, std::string>;  // "layers.3.weight"

// Ops of segment `index`; its outputs are the values that are read later, by the host or by another
// segment. An input that is in `names` gets that name, and what gives its gradient one made of it.
Step extract_segment(const Record& record, uint32_t index, const ValueNames& names);

}  // namespace megjit::jit
