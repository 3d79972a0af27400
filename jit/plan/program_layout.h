// jit/plan/program_layout.h -- where everything of a program lies, and in which order it runs:
// plain numbers, made without memory and without a run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "jit/plan/prepared_graph.h"
#include "jit/step/step.h"
#include "memory/inplace.h"

namespace megjit::jit {

// Kernels expect operands where an allocator would have put them.
constexpr size_t kOperandAlign = 64;

// What memory/ decided about the values of a prepared graph.
struct BufferPlan {
    memory::Schedule schedule;  // a step for each prepared node
    memory::Aliasing aliasing;
    std::vector<size_t> offsets;  // by buffer: in the arena, or in the host's
    std::vector<uint32_t> workspaces;  // by step: the value that is its workspace, or kNone
    size_t arena_bytes = 0;
    size_t host_bytes = 0;
};

// `check`: InternalError when the validators of memory/ find a fault.
BufferPlan plan_buffers(const PreparedGraph& prepared, const Step& step, bool check);

struct ProgramLayout {
    // An operand's address: so far after an arena's start, or after the start of `source`.
    struct Operand {
        memory::Place place = memory::Place::kArena;
        uint32_t source = 0;  // kInput: slot; kOutput: result; kConstant: value id
        size_t offset = 0;  // bytes
    };
    struct Step {
        uint32_t node = 0;  // of PreparedGraph::nodes; a copy: the one that it is made for
        bool is_copy = false;  // it copies copy_bytes bytes from its first operand to its second
        size_t copy_bytes = 0;
        uint32_t first_operand = 0;  // inputs, then outputs
        uint32_t inputs = 0;
        size_t workspace = 0;  // offset in the arena
        // Transfers, and on the host what is exchanged with other processes, run on the device's
        // copy stream, after what was queued before them. Other steps wait first for the transfer
        // that `waits_for` names.
        bool is_transfer = false;
        uint32_t waits_for = memory::kNone;
    };
    // A distinct buffer that ends as an output.
    struct Result {
        ValueId value = {};
        bool is_donated = false;  // it lies on the input of `slot`
        uint32_t slot = 0;
    };
    // Where an output of the graph comes from.
    struct Output {
        enum class From : uint8_t { result, input, constant } from = From::result;
        uint32_t index = 0;  // result, slot or value id
    };
    std::vector<Step> steps;
    std::vector<Operand> operands;
    std::vector<Result> results;
    std::vector<Output> outputs;
    std::vector<uint32_t> overwritten;  // slots whose storage holds temporary values only
    std::vector<uint32_t> slots_outside;  // of inputs that do not lie in memory
    bool has_transfers = false;
    size_t arena_bytes = 0;
    size_t host_bytes = 0;

    std::vector<uint32_t> first_outputs;  // by result: which output is where it lies

    // What an operand's offset is counted from, where addresses are known and where code is written
    // that will know them: inputs by slot, outputs by position, constants by value.
    template <class Start, class Input, class Output, class Constant>
    Start start_of(const Operand& operand, Start arena, Input input, Output output,
                   Constant constant) const {
        switch (operand.place) {
            case memory::Place::kInput: return input(operand.source);
            case memory::Place::kOutput: return output(first_outputs[operand.source]);
            case memory::Place::kConstant: return constant(operand.source);
            default: return arena;
        }
    }
    // The place that an output with memory of its own is copied from when all has run; nothing: its
    // value lies in that memory.
    std::optional<Operand> copied_from(size_t output) const;
};

// MEGJIT_DUMP=plan shows it.
ProgramLayout lay_out(const PreparedGraph& prepared, const BufferPlan& buffers);
std::string print(const ProgramLayout& layout, const PreparedGraph& prepared);

// Queues a step, whose operands lie at these addresses, inputs first.
void enqueue(const PreparedGraph& prepared, const ProgramLayout::Step& step, void* const* operands,
             std::byte* arena, runtime::Stream& stream);

}  // namespace megjit::jit
