// memory/inplace.h -- decides which values of a schedule share one buffer.
// In: what each step reads and writes, and where a kernel allows its result to overwrite an
// operand. Out: a buffer for each value, and where that buffer lives. plan_arena() does the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "memory/planner.h"

namespace megjit::memory {

inline constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

enum class ValueKind : uint8_t {
    kTemp,  // written by a step, gone after its last read
    kInput,  // there before step 0, in the caller's storage; state that is read counts as input
    kConstant,  // there before step 0, never overwritten
    kOutput,  // written by a step, kept after the last step; later steps may read it too
    kHost,  // as kTemp, in the host's memory while the others are in a device's
};

struct Value {
    size_t bytes = 0;
    ValueKind kind = ValueKind::kTemp;
    // For inputs: after the last read the program may overwrite the storage, with an output that
    // takes it over or with a temporary value.
    bool donatable = false;
    size_t align = 64;  // a power of two
};

enum class AliasKind : uint8_t {
    kInPlace,  // the result may overwrite the operand, as its elements are read before they are
               // written
    kView,  // a reshape: nothing is computed, the result must lie where the operand lies
    kSlice,  // the result may lie in the operand, as its bytes [offset, offset + bytes of the
             // result)
    kPart,  // a concat: the operand may lie in the result, as its bytes [offset, offset + bytes of
            // the operand)
};

// Where a result and an operand may share bytes. One result may have several partners.
struct Alias {
    uint32_t output = kNone;  // value id, written by the step
    uint32_t input = kNone;  // value id, read by the step
    AliasKind kind = AliasKind::kInPlace;
    size_t offset = 0;  // in bytes; views may have one, too
};

// All reads and writes of a step happen together: what it reads and what it writes never share
// storage, unless an Alias says so.
struct StepAccess {
    std::vector<uint32_t> reads = {};  // value ids
    std::vector<uint32_t> writes = {};  // value ids; a value is written once, in one step
    std::vector<Alias> aliases = {};
};

struct Schedule {
    std::vector<Value> values = {};  // a value's id is its index
    std::vector<StepAccess> steps = {};
};

enum class Place : uint8_t { kArena, kInput, kConstant, kOutput, kHost };

struct SharedBuffer {
    size_t bytes = 0;
    Lifetime live = {};  // lifetime of all its values; of inputs, constants, outputs: always
    Place place = Place::kArena;
    uint32_t value = kNone;  // the input, constant or output whose storage it is; else kNone
    uint32_t output = kNone;  // the output value that ends here, if any; with kInput: a donation
    bool overwritten = false;  // with kInput: some step writes to it
    size_t align = 64;  // alignment of the value that it was made for
};

// "At `step`, before anything else of that step, copy `from` to `to`": `to` is an output that is
// only a view of a value that cannot become an output itself.
struct Copy {
    uint32_t step = 0;
    uint32_t to = kNone;  // id of a value
    uint32_t from = kNone;  // id of a value
    size_t offset = 0;  // bytes into `from`

    bool operator==(const Copy&) const = default;
};

struct Aliasing {
    // By value id: an index into buffers, and the offset in bytes in that buffer (0, but for views
    // and parts).
    std::vector<uint32_t> buffer_of = {};
    std::vector<size_t> offset_of = {};
    std::vector<SharedBuffer> buffers = {};
    std::vector<Copy> copies_needed = {};
};

// Steps in which each value is live, by value id. Outputs, constants and inputs that are not
// donatable are live in one more step after the last one, in which the caller looks at them.
std::vector<Lifetime> lifetimes_of(const Schedule& schedule);

// Throws std::invalid_argument when an id is out of range, a value is written twice or not at all,
// an alias names a value that its step does not read or write, or a view or a part does not fit.
Aliasing share_buffers(const Schedule& schedule);

// The buffers that plan_arena() has to place, in the arena or in the host's arena; Buffer::id is
// the index into aliasing.buffers.
std::vector<Buffer> arena_buffers(const Aliasing& aliasing, Place arena = Place::kArena);

// The figures of fn.memory_plan().
struct MemorySummary {
    size_t unplanned_bytes = 0;  // with one buffer for each value
    size_t planned_bytes = 0;  // inputs, constants, own outputs and the arena, but for the host
    size_t peak_live_bytes = 0;  // the same with the smallest arena that can exist
    size_t arena_bytes = 0;
};

MemorySummary summarize(const Schedule& schedule, const Aliasing& aliasing, size_t arena_bytes);

}  // namespace megjit::memory
