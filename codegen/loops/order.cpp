// The order in which a program's instructions are written. A CPU looks at some hundred instructions
// at once: a polynomial of which each step waits for the one before leaves its units idle, unless
// another chain lies between its steps.
#include <algorithm>

#include "codegen/loops/frame.h"

namespace megjit::codegen::loops {
namespace {

using runtime::arity_of;
using runtime::ScalarInst;
using runtime::ScalarProgram;

// Returns for each instruction how many of `ids` follow it, one after the other, in its longest
// chain.
std::vector<int> chain_behind(const ScalarProgram& program, std::span<const int> ids) {
    std::vector<int> behind(static_cast<size_t>(program.size()));
    for (size_t n = ids.size(); n-- > 0;) {
        const ScalarInst& inst = program[ids[n]];
        for (int k = 0; k < arity_of(inst.op); ++k) {
            int& length = behind[static_cast<size_t>(inst.args[k])];
            length = std::max(length, behind[static_cast<size_t>(ids[n])] + 1);
        }
    }
    return behind;
}

}  // namespace

// Takes the instruction whose operands are there first, and among several the one with the longest
// chain behind it.
std::vector<int> spread_chains(const ScalarProgram& program, std::span<const int> ids, int wait) {
    const std::vector<int> behind = chain_behind(program, ids);
    std::vector<int> order, left, there(static_cast<size_t>(program.size()));
    std::vector<bool> waits(there.size());
    for (const int id : ids) {
        const bool is_constant = program[id].op == ScalarOp::constant;
        (is_constant ? order : left).push_back(id);
        waits[static_cast<size_t>(id)] = !is_constant;
    }
    const auto ready = [&](int id) {  // -1: not yet known
        int time = 0;
        for (int k = 0; k < arity_of(program[id].op); ++k) {
            const auto arg = static_cast<size_t>(program[id].args[k]);
            if (waits[arg]) return -1;
            time = std::max(time, there[arg]);
        }
        return time;
    };
    for (int now = 0; !left.empty(); ++now) {
        size_t best = left.size();
        int start = 0;
        for (size_t n = 0; n < left.size(); ++n) {
            const int time = std::max(now, ready(left[n]));
            if (ready(left[n]) < 0) continue;
            const auto length = [&](size_t at) { return behind[static_cast<size_t>(left[at])]; };
            if (best < left.size() &&
                (time > start || (time == start && length(n) <= length(best))))
                continue;
            best = n, start = time;
        }
        const int id = left[best];
        left.erase(left.begin() + static_cast<ptrdiff_t>(best));
        order.push_back(id);
        waits[static_cast<size_t>(id)] = false;
        now = start;
        there[static_cast<size_t>(id)] = start + wait;
    }
    return order;
}

}  // namespace megjit::codegen::loops
