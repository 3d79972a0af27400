// jit/plan/memory_plan.h -- MemoryPlan: what a program takes of memory, for fn.memory_plan(), the
// pictures and the ladder of plans.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jit/plan/program_layout.h"

namespace megjit::jit {

// What a buffer is to a training step: the colours of the pictures. It follows the first value that
// lies there.
enum class BufferUse : uint8_t {
    input,
    parameter,
    state,  // from outside, and replaced by the call, which computes no gradient for it
    constant,
    activation,
    gradient,
    recomputed,
    workspace
};

std::string_view name_of(BufferUse use);  // "activation"
std::string_view name_of(memory::Place place);  // "arena"

// One buffer of the plan, for fn.memory_plan() and the pictures.
struct PlannedBuffer {
    memory::Place place = memory::Place::kArena;
    size_t offset = 0;  // bytes from the start of the arena; on the host: of the host's arena
    size_t bytes = 0;
    memory::Lifetime live = {};
    BufferUse use = BufferUse::activation;
    // "%3 relu f32[8, 64] model.py:41"; of a named input "%1 layers.3.weight f32[64, 64]".
    std::vector<std::string> values = {};
};

// One of the plans that a search found: what a call takes, and what its steps are estimated to
// cost.
struct CurvePoint {
    size_t bytes = 0;  // planned_bytes; an estimate where the plan's program was not made
    double seconds = 0;
    bool is_chosen = false;
};

// The time of transfers to a file and back, by the measured speed of its folder.
struct TransferTimes {
    double seconds = 0;
    double waited = 0;  // those of them in which no step runs
};

struct MemoryPlan {
    size_t unplanned_bytes = 0;  // one buffer per recorded value
    size_t planned_bytes = 0;  // inputs, state, outputs, the arena and held_bytes
    size_t held_bytes = 0;  // Step::held_bytes
    size_t peak_live_bytes = 0;  // the lower bound
    size_t arena_bytes = 0;
    size_t workspace_bytes = 0;  // part of the arena
    // Values in the host's memory, or in a file, take these beside planned_bytes.
    size_t host_bytes = 0;
    size_t transferred_bytes = 0;  // there and back in one call
    size_t written_bytes = 0;  // those of them that go there
    TransferTimes transfers = {};
    double recompute_flops_ratio = 0;
    std::vector<PlannedBuffer> buffers = {};
    std::vector<std::string> steps = {};  // what runs at each step
    std::vector<CurvePoint> curve =
        {};  // from the cheapest to the smallest; empty where none was searched for
    // No plan of these steps takes less (memory/lower_bound.h). Only plans above the limit have
    // this bound.
    struct Bound {
        size_t bytes = 0;
        std::string why = {};  // which values are alive at once
    };
    Bound bound = {};
};

class Arenas;
class BoundWeights;

struct LoweringOptions {
    std::string function = "a compiled graph";  // "step (train.py:41)", for errors
    bool check = false;  // MEGJIT_CHECK: validate the plan, compare kernels with the interpreter
    bool profile = false;  // measure the time of each step
    std::vector<CurvePoint> curve = {};  // of the plan
    TransferTimes transfers = {};  // likewise
    std::optional<Kernels> kernels = {};  // not given: the service is asked for each
    size_t memory_limit = 0;  // of a call, which arenas of other programs must not break; 0: none
    std::string spill = {};  // MemoryOptions::spill
    // The function's; null: the program has its own.
    std::shared_ptr<Arenas> arenas = {};
    std::shared_ptr<BoundWeights> weights = {};
};

// `step` has the graph before the passes, which unplanned_bytes counts.
MemoryPlan report_of(const PreparedGraph& prepared, const BufferPlan& buffers, const Step& step,
                     const LoweringOptions& options);

// The plan of the program that would run, without a program: nothing is allocated.
MemoryPlan plan_of(Graph graph, const Step& step, const LoweringOptions& options);

// The arena's largest buffers in the step where most of it is alive: "800 B %3 relu f32[8, 25]
// model.py:41". At most `count`, and no more than make up `share` of what is alive there; the last
// text counts the others.
std::vector<std::string> largest_at_peak(const MemoryPlan& plan, size_t count, double share = 1);

// The largest of what has storage of its own: inputs, parameters, results.
std::vector<std::string> largest_outside_arena(const MemoryPlan& plan, size_t count);

}  // namespace megjit::jit
