// jit/trace/file_notes.h -- FileNotes: what a recording notes for dump besides its record: what a
// file has to compute anew, or keep as a state, and what stands in the way. It is kept with
// capture_as_const only.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "jit/trace/record.h"

namespace megjit::jit {

// One extent of a value.
struct ExtentOf {
    RecordId value = {};
    int axis = 0;
};

// What follows from extents alone: the shape of a value, and what is computed of its extents.
struct OfExtents {
    std::optional<RecordId> shape_of = {};  // it is this value's whole shape
    std::vector<ExtentOf> extents = {};
    bool is_itself = false;  // it is the one extent that it was computed of
};

// The origin of an extent in the attributes of a recorded call decides what becomes of the extent
// when the inputs have another batch (jit/file/batch_flow.h).
struct GivenExtent {
    enum class Kind : uint8_t {
        derived,  // from the operands' extents, by the op or the function that issued it
        written,  // a number of the program
        solved,  // what the others leave
        read,  // computed of extents, `of`
    } kind = Kind::derived;
    std::vector<ExtentOf> of = {};
    bool is_itself = false;  // read: it is that extent
};

// What the graph does not say of a recorded call.
struct CallNotes {
    std::vector<GivenExtent> given = {};  // by axis; empty: derived
    std::string scope = {};  // path of the module that issued it
};

// An op whose results' shape follows from the data, and which the host computed while recording.
struct OutsideOp {
    const OpDef* op = nullptr;
    Attrs attrs = {};
    std::vector<RecordId> inputs = {};
    std::string where = {};
    std::vector<RecordId> results = {};  // kept where they are constants of the record
};
// A value that is result `output` of such an op, or (-1) was computed of one.
struct OutsideValue {
    uint32_t op = 0;
    int output = -1;
};

// The host has read this value while the body ran.
struct ValueRead {
    RecordId value = {};
    std::string where = {};
};

// The body took an extent for a number.
struct ExtentRead {
    ExtentOf of = {};
    std::string where = {};
};

struct FileNotes {
    std::unordered_map<NodeId, CallNotes> calls = {};
    std::unordered_map<RecordId, OfExtents> of_extents = {};
    std::vector<RecordId> results = {};  // what the body returned, flat
    std::vector<Held> held = {};  // what the call takes from outside and replaces there, by value
    // What follows from this call's arguments, though the record has a constant or a fixed shape
    // for it.
    std::vector<OutsideOp> outside_ops = {};
    std::unordered_map<RecordId, OutsideValue> computed_outside = {};
    // Ops on values that are equal in each call: what they read may still be a state of the file.
    std::vector<OutsideOp> constant_selections = {};
    std::vector<ValueRead> value_reads = {};  // no record holds what the host makes of them
    std::vector<ExtentRead> extent_reads = {};
    // Each of these texts is empty where the body did nothing of the kind.
    std::string outside_read_at = {};  // where the program took a result of outside_ops for its own
    std::string left_trace_at = {};  // where the body took, from outside of the trace, what follows
                                     // from what it computes
    std::string bound_anew = {};  // what the body reads and then binds to another tensor: "q0, at
                                  // train.py:41", "q0, in step (train.py:38)"
    std::string updates = {};  // what the call rebound that outlives it: "a f32[3] tensor at
                               // train.py:41"

    // The notes for `record`, which begins like the record that these notes are about.
    FileNotes prefix(const Record& record) const;
    // Both give empty notes where nothing is noted.
    const CallNotes& call(NodeId node) const;
    const OfExtents& of_extents_of(RecordId value) const;
};

}  // namespace megjit::jit
