// tests/card/emulator/ptx/code.h -- decoded instructions, and the state that they change.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "tests/card/emulator/device.h"
#include "tests/card/emulator/ptx/program.h"
#include "tests/card/emulator/ptx/shared.h"
#include "tests/card/emulator/ptx/syntax.h"

namespace megjit::card::ptx {

constexpr int kLanes = 32;
constexpr uint32_t kAll = 0xffffffff;

struct Warp;
struct Inst;
using Run = void (*)(Warp&, const Inst&);

// Registers are rows of 32 elements in the warp's register file, named by their offsets in bytes;
// predicates are words with a bit a lane. Constants and special registers are rows too.
struct Inst {
    Run run = nullptr;
    uint32_t d = 0, a = 0, b = 0, c = 0, e = 0;
    uint32_t target = 0;  // of a branch
    int32_t guard = -1;
    bool guard_negated = false;
    uint8_t flags = 0, mode = 0, count = 1;  // what the operation makes of them
    uint64_t imm = 0;
    const uint32_t* list = nullptr;  // rows of a vector operand, targets of brx
    uint32_t extent = 0;  // of the launch: where this instruction found memory last
    uint32_t statement = 0;
};

// What is the same for all warps of a kernel.
struct Code {
    std::vector<Inst> insts;
    uint32_t entry = 0;
    uint32_t file_bytes = 0;  // of a warp's registers
    struct Constant {
        uint32_t offset;
        uint32_t element_bytes;
        uint64_t bits;
    };
    std::vector<Constant> constants;
    enum class What : uint8_t {
        tid_x,
        tid_y,
        tid_z,
        ntid_x,
        ntid_y,
        ntid_z,
        ctaid_x,
        ctaid_y,
        ctaid_z,
        nctaid_x,
        nctaid_y,
        nctaid_z,
        laneid,
        warpid,
        nwarpid,
        smid,
        nsmid,
        gridid,
        lanemask_eq,
        lanemask_le,
        lanemask_lt,
        lanemask_ge,
        lanemask_gt,
        dynamic_smem_size,
        total_smem_size,
        zero,
        one
    };
    struct Special {
        What what;
        uint32_t offset;
    };
    std::vector<Special> specials;
    uint32_t local_bytes = 0, static_shared_bytes = 0, extents = 0;
    std::vector<Statement> statements;  // without operands: for messages
    std::deque<std::vector<uint32_t>> lists;
};

// ---- generic addresses of what is not global; beyond what a process can map
constexpr Address kWindow = Address{1} << 47, kWindowBytes = Address{1} << 32;
constexpr Address kSharedWindow = kWindow, kLocalWindow = kWindow + kWindowBytes,
                  kParamWindow = kWindow + 2 * kWindowBytes,
                  kFunctionWindow = kWindow + 3 * kWindowBytes;

// Lanes of a warp that are at one place.
struct Group {
    const Inst* ip;
    uint32_t mask;
    enum class Wait : uint8_t { none, barrier, warp } wait = Wait::none;
    uint8_t barrier = 0;
    uint32_t needs = 0;  // of a wait for the warp: lanes that must come to the same place
};

struct Block;
struct Launch;

struct Warp {
    std::byte* registers = nullptr;
    std::byte* local = nullptr;  // Code::local_bytes a lane
    uint32_t active = 0;  // lanes that run now
    uint32_t dead = 0;  // that have left, or never were: what is written to them does not matter
    const Inst* next = nullptr;
    const Inst* limit = nullptr;  // where other lanes wait to go on, at the earliest
    Block* block = nullptr;
    uint32_t index = 0;
    uint32_t carry = 0;  // of add.cc
    std::vector<Group> groups;  // the other lanes
    std::array<std::vector<uint32_t>, kLanes> calls;  // where lanes return to
    uint32_t backward = 0;  // branches since the warp was scheduled
    bool yields = false;
    uint32_t faulty = kAll;  // lanes among which the first caused a fault

    bool finished() const { return dead == kAll; }
};

struct Barrier {
    uint32_t arrived = 0;  // threads
    uint32_t padded = 0;  // likewise, warps that came whole counted as 32
    uint32_t expected = 0;  // 0: all threads that live
    uint32_t votes = 0;  // of bar.red
};

struct Block {
    Block(Launch& launch, uint32_t shared_bytes)
        : launch(launch), shared_bytes(shared_bytes), log(shared_bytes) {}

    Launch& launch;
    std::byte* shared = nullptr;
    const uint32_t shared_bytes;
    SharedLog log;
    Dim3 index;
    std::vector<Warp> warps;
    std::array<Barrier, 16> barriers;
    uint32_t live = 0;  // threads
};

struct Launch {
    Card& card;
    const Kernel& kernel;
    const Code& code;
    const Shape& shape;
    std::vector<Extent> extents;
    uint64_t bytes = 0, instructions = 0;  // of all threads
    std::string printed;
};

template <class T>
inline T* row(const Warp& w, uint32_t offset) {
    return static_cast<T*>(__builtin_assume_aligned(w.registers + offset, 4));
}
inline uint32_t& predicate(const Warp& w, uint32_t offset) { return *row<uint32_t>(w, offset); }

// Lanes that execute the instruction.
inline uint32_t mask_of(const Warp& w, const Inst& in) {
    if (in.guard < 0) return w.active;
    const uint32_t p = predicate(w, static_cast<uint32_t>(in.guard));
    return w.active & (in.guard_negated ? ~p : p);
}

// d[i] = f(i) for the lanes that execute; f must be defined for all.
template <class D, class F>
[[gnu::always_inline]] inline void lanes(Warp& w, const Inst& in, F f) {
    D* d = row<D>(w, in.d);
    const uint32_t m = mask_of(w, in);
    if ((m | w.dead) == kAll) {
#pragma GCC ivdep
        for (int i = 0; i < kLanes; ++i) d[i] = f(i);
    } else if (m) {
#pragma GCC ivdep
        for (int i = 0; i < kLanes; ++i) {
            const D value = f(i);
            d[i] = m & (1u << i) ? value : d[i];
        }
    }
}

// As bits, for all lanes.
template <class F>
[[gnu::always_inline]] inline uint32_t vote(F f) {
    uint32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(f(i)) << i;
    return bits;
}
inline void set_predicate(Warp& w, uint32_t offset, uint32_t bits, uint32_t m) {
    uint32_t& p = predicate(w, offset);
    p = (p & ~m) | (bits & m);
}

inline int first_lane(uint32_t m) { return std::countr_zero(m) & (kLanes - 1); }  // of some
template <class F>
inline void each_lane(uint32_t m, F f) {
    for (; m; m &= m - 1) f(std::countr_zero(m));
}

// ---- the lanes' ways (ptx/control.cpp)
void park(Warp& w, const Group& group);  // lanes of `active` that wait for what the group says
void lanes_left(Warp& w, uint32_t lanes);
// Takes up the lowest place where lanes can go on; false when there is none.
bool reschedule(Warp& w);
// Runs until no lane can go on, or the warp yields. Throws Fault.
void run(Warp& w);

// ---- (ptx/warp.cpp) Lanes that go on now: those whose masks' lanes have all come here. The others
// wait. 0: none.
uint32_t together(Warp& w, const Inst& in, uint32_t mask_row, bool is_barrier = false);

// Throws a fault of the lanes; execute() adds where it was.
[[noreturn]] void stop(Warp& w, uint32_t lanes, Result result, const std::string& why);

}  // namespace megjit::card::ptx
