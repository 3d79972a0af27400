// memory/recompute_schedule.h -- from "this value is not kept between these two uses" to a list of
// steps. The search (rematerialize.cpp) moves in the space of such choices; every choice gives a
// valid list.
#pragma once

#include <span>

#include "memory/inplace.h"
#include "memory/remat_problem.h"

namespace megjit::memory {

// The time between two uses of a value in the plain order. Its level says what becomes of the
// value: 0: it is kept. 1 and above: it is dropped, and computed again before the second use. If
// another value that is needed earlier is computed from it, it is computed then, and it stays if
// nothing of a lower level follows it among what is computed with it. So level-1 values stay
// between the recomputed stretches of level-2 ones, as checkpoints of checkpoints. The last gap of
// a value goes from its last use to the end: 0: it is gone; 1: it is kept.
struct Gap {
    uint32_t value = 0;
    uint32_t from = 0;  // step, in the plain order
    uint32_t to = 0;  // step; kNone for the last gap
};
using Levels = std::vector<uint8_t>;  // by gap
inline constexpr uint8_t kMostLevel = 5, kUsualLevel = 3;

// Lists of numbers that lie one behind the other: the search reads them many thousand times.
class Lists {
public:
    void add(std::span<const uint32_t> list) {
        numbers_.insert(numbers_.end(), list.begin(), list.end());
        ends_.push_back(static_cast<uint32_t>(numbers_.size()));
    }
    std::span<const uint32_t> operator[](uint32_t index) const {
        return std::span(numbers_).subspan(ends_[index], ends_[index + 1] - ends_[index]);
    }

private:
    std::vector<uint32_t> numbers_, ends_ = {0};
};

// A stretch of a schedule in which a value only waits.
struct Wait {
    uint32_t gap = 0;
    uint32_t from = 0, to = 0;  // positions of the write or read before, and of the next read
};

struct Simulation {
    bool is_valid = false;  // false: the list had too many steps, and the simulation was given up
    RematPlan plan = {};
    std::vector<size_t> bytes_at = {};  // by position in plan.order
    std::vector<uint32_t> position_of = {};  // by step: its run that is no repetition
    std::vector<Wait> waits = {};
};

struct Copies;

class RecomputeSchedule {
public:
    explicit RecomputeSchedule(const RematProblem& problem, Places places = Places::listed);
    Simulation simulate(const Levels& levels) const;
    // Peak and cost of a list of steps; throws like measure().
    RematPlan measured(std::vector<uint32_t> order) const;

    const RematProblem& problem;
    std::vector<Gap> gaps;
    std::vector<uint32_t> first_gap;  // by value, with one more at the end
    Levels least_levels;  // 1 for values that must be dropped
    std::vector<uint32_t> producer;  // by value; kNone: the value is there from the start
    std::vector<uint32_t> overwriter;  // by value: the first step that overwrites it, or kNone
    bool has_overwriters = false;
    // By value, its last reader in the plain order; by step, the last reader of all that it writes.
    // kNone where a value must be kept.
    std::vector<uint32_t> last_reader, last_reader_of;
    // By gap: may it be dropped, and are its producer's operands not overwritten by then?
    std::vector<char> may_drop;
    Lists readers;  // by value: steps, ascending, each once
    Lists reads, writes;  // by step: values

    // May the value be dropped between two uses?
    bool is_free(uint32_t value) const { return is_free_[value]; }
    bool is_tail(uint32_t gap) const { return gaps[gap].to == kNone; }

private:
    void find_what_may_be_dropped();
    bool leave_out_what_nobody_needs(Simulation& out) const;
    void run_late(Simulation& out, const Copies& copies) const;
    // Sets peak, cost and bytes at each position of the plan's order.
    void measure(const Copies& copies, RematPlan& plan, std::vector<size_t>& bytes_at) const;

    std::vector<char> is_free_;  // by value
    Places places_;
};

}  // namespace megjit::memory
