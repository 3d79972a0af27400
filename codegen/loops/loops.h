// codegen/loops/loops.h -- the level between a kernel and text: loops, branches, loads and stores
// over vectors, in SSA form. `loops_of` makes them of a kernel for a target; back-ends print them,
// one line for each instruction, and the interpreter runs them. What depends on the target (lanes,
// threads) is decided by a Target: no back-end knows how a row is walked or reduced.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/gpu_plan.h"
#include "codegen/kernel_ir.h"

namespace megjit::codegen::loops {

using runtime::ScalarOp;

// `index` is the type of counters: 64 bits, or 32 where the numbers of the launch fit
// (GpuPlan::wide). Operands in memory are f32, f64, i64, i32, i16 and i8.
enum class Kind : uint8_t { b1, i8, i16, i32, i64, index, f32, f64 };
Kind kind_of(ScalarType type);
Kind storage_of(DType dtype);
int bytes_of(Kind kind);

struct Type {
    Kind kind = Kind::index;
    int lanes = 1;  // 1: a scalar
    bool is_pointer = false;  // it points to elements of that kind, and has one lane
    bool operator==(const Type&) const = default;
};
Type result_of(ScalarOp op, Type taken);  // `taken`: the operands' type (select: arms)

// X(name): the instructions. `compute` is a ScalarOp, but no cast, with the meaning of
// runtime/core/scalar.h, also on index; div and mod on index and i64 are unsigned.
#define MEGJIT_LOOP_OPS(X) \
    X(compute) /* a, b, c */ \
    X(convert) /* a: to the result's kind, as `cast` of scalar.h; an index is an i64 */ \
    X(bits) /* a: the same bits as another kind of that size */ \
    X(fence) /* a, which no compiler may see through */ \
    X(widen) /* a, as stored: to the compute type of `dtype` */ \
    X(shorten) /* a: to what is stored */ \
    X(lanes) /* 0, 1, 2, ... */ \
    X(splat) /* a in all lanes */ \
    X(lane) /* a's lane `number` */ \
    X(half) /* lanes of a: the lower half (number 0), or the upper one (1) */ \
    X(zip) /* lanes of a and b in turn: of their lower halves (number 0), or the upper ones (1) */ \
    X(at) /* pointer, elements (index or i64) */ \
    X(address) /* a pointer, as an index */ \
    X(load) /* pointer, mask or nothing: neighbors, 0 where the mask is off; number: Access */ \
    X(gather) /* pointer, offset of each lane (i64) */ \
    X(store) /* pointer, value, mask or nothing; number: Access */ \
    X(scatter) /* pointer, offsets, value, mask or nothing */ \
    X(loop) /* from, to, step, state...; a block with the index and the state */ \
    X(choose) /* condition; a block for true, one for false */ \
    X(word) /* a: the word of the table with that number, as a number or a pointer */ \
    X(thread) /* of a GPU's block; number: Where */ \
    X(from_thread) /* a (i32) of the thread of this warp whose number differs in `number` */ \
    X(multiply) /* by tensor cores of a warp: 4 words of two rows of halves (of `dtype`), 2 of a \
                   column, an f32x4 of sums; where threads hold what, PTX says (mma.m16n8k16) */ \
    X(barrier) /* number: 1 for a warp, 0 for the block */ \
    X(publish) /* what this thread stored, and what others did before it, is seen from here on */ \
    X(count) /* pointer to i32: adds 1 for all blocks, gives what was there */

enum class Op : uint8_t {
#define MEGJIT_X(name) name,
    MEGJIT_LOOP_OPS(MEGJIT_X)
#undef MEGJIT_X
};
std::string_view name_of(Op op);
// Returns which lane, among those of a and then those of b, goes to a lane of `zip`.
constexpr int64_t zipped_from(int64_t lane, int64_t lanes, int64_t number) {
    return (number * lanes + lane) / 2 + lane % 2 * lanes;
}

// kAligned: at multiples of the vector's size; kOfOthers: another block of a GPU stored it.
// kPastCaches: a store of vectors that need not stay in a cache, at multiples of 64 bytes or of the
// vector's size. `publish` comes after the last one.
enum Access : int64_t { kAnywhere = 0, kAligned = 1, kOfOthers = 2, kPastCaches = 4 };
enum class Where : uint8_t { thread, block, blocks, part };  // part: of a row, by block

struct Inst;
struct Block {
    std::vector<int> parameters;
    std::vector<Inst> insts;
    std::vector<int> results;
};
struct Inst {
    Op op = Op::compute;
    ScalarOp compute = ScalarOp::add;
    DType dtype = DType::f32;  // for `widen`, `shorten`, `multiply`, and `compute narrow`
    int64_t number = 0;
    std::vector<int> args;  // values
    std::vector<int> results;
    std::vector<Block> blocks;
};

struct Function {
    // A value: the result of an instruction, a parameter, a room, or a constant (the same in all
    // lanes).
    struct Known {
        Type type;
        bool is_constant = false;
        uint64_t bits = 0;  // value of the constant
    };
    // Memory of the function: on the stack, or shared by a block's threads.
    struct Room {
        int value = -1;  // the pointer to it
        int64_t elements = 0;
        int lanes = 1;  // lanes of the vectors by which it is read and written
        bool is_shared = false;
    };
    std::vector<Known> values;
    // Pointers to inputs in memory and to outputs; extents; strides; gather strides. Then follow
    // the first and the last unit on a CPU, and the memory of parts and the tickets on a GPU with
    // parts.
    std::vector<int> parameters;
    int table_words = 0;  // size of the LaunchTable, where that is the only parameter
    std::vector<Room> rooms;
    Block body;

    const Type& type_of(int value) const { return values[static_cast<size_t>(value)].type; }
};

// Numbers that change the time, but no bit: a tuner may choose them. Bodies are counted in
// instructions.
struct Schedule {
    int short_body = 8;  // a body of at most this size is written out for each element of a chain
    // This many vectors go through a body together, for waiting for the results of one takes longer
    // than the others' work. It is a power of two, at most 8.
    int vectors_at_once = 4;
    int long_chain = 24;  // element-wise bodies of at least this size take vectors together
    int wait = 2;  // instructions that lie between one and those that wait for its result
    int long_body = 64;  // from this size on a second copy of a body costs more to compile than a
                         // branch at its loads and stores costs to run
    int worth_keeping = 8;  // instructions that cost more to repeat than a value to store
    int64_t kept_elements = 8192;  // a row of at most this length keeps a value on the stack
    int64_t streamed_bytes = 32 << 20;  // a launch that writes more stores it past the caches
    int64_t units_together = 16;  // columns' units whose accumulators stay in the L1 cache
    int tile_vectors = 2;  // vectors of columns that go through a tile together
    // Accumulators fill half the registers.
    int tile_rows(int registers) const { return registers / (2 * tile_vectors); }
    // Where registers are few, or values many, half as many vectors are computed together.
    int pieces_together(int registers, size_t body) const {
        return is_short(body) || (registers >= 32 && !is_long(body)) ? vectors_at_once
                                                                     : (vectors_at_once + 1) / 2;
    }
    // A panel of panel_terms indices of the reduced axis stays in the L1 cache; with the sums of
    // the units that it serves it takes 80 KiB of the stack.
    int64_t panel_terms = 128, panel_units = 4;
    // Returns how many rows a panel has. Its columns need no pointers, so the rows take most of the
    // registers where these are few.
    int panel_rows(int registers) const { return registers >= 32 ? 8 : 6; }
    // Rows of a tile of dots whose rows have `own` instructions beside the shared ones. If a row
    // only loads, its lanes fill half the registers; else there are few rows, whose conversions
    // would compete with the sums.
    int dot_rows(int registers, size_t own) const {
        return own <= 1 ? registers / 4 : is_short(own) ? registers / 16 : 1;
    }
    bool is_short(size_t body) const { return static_cast<int>(body) <= short_body; }
    bool is_long(size_t body) const { return static_cast<int>(body) >= long_body; }
};

// The machine that loops are made for.
struct Target {
    int width = 16;  // lanes of a value; on a GPU those of the plan
    int registers = 16;  // a CPU's, for vectors
    bool streams = false;  // stores may go past the caches, on a CPU
    bool divides = true;  // integers are divided by `compute div`; else by way of f64
    std::optional<GpuPlan> gpu = {};
    Schedule schedule = {};
};

Function loops_of(const KernelIR& kernel, const Target& target);

// Text; print and parse are inverses.
std::string print(const Function& function);
Function parse_loops(std::string_view text);  // UserError with the line on a fault
std::string fault_of(const Function& function);  // by the verifier; "" if sound

// Runs loops that were made for a CPU; `arguments` are the parameters, pointers as addresses.
void run(const Function& function, const std::vector<uint64_t>& arguments);

}  // namespace megjit::codegen::loops
