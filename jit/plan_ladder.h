// jit/plan_ladder.h -- PlanLadder: one graph's plans of recomputation, from the cheapest to the
// smallest, and the first of them that fits into the memory that is allowed.
//
// The plans do not depend on the limit, and they are tried in order: so more memory never gives a
// slower plan, and less memory never a larger peak. Those are left out that by the search's count
// cannot fit.
#pragma once

#include <optional>
#include <string>

#include "jit/memory_plan.h"
#include "jit/passes/passes.h"
#include "memory/rematerialize.h"
#include "runtime/host/error.h"

namespace megjit::jit {

// Nothing of the function may run then: it was refused, it has not failed.
class OverLimit : public runtime::UserError {
public:
    using runtime::UserError::UserError;
};

// Of the search for plans that runs in this process: the part that is done, 0 to 1; 0 where none
// runs. For whoever shows progress while another thread searches.
double searched_part();

class PlanLadder {
public:
    explicit PlanLadder(const MemoryOptions& options) : options_(options) {}
    bool is_wanted() const { return shapes_the_plan() || options_.only_looks; }

    // A pipeline that makes the graph of the rung where the ladder stands. The ladder outlives it,
    // unmoved.
    PipelineOptions with_plan(PipelineOptions passes);

    // The same plans, none of them tried.
    PlanLadder from_the_top() const;

    // Does this program, made of the present rung, fit? If not the ladder stands on the next rung
    // that may.
    bool accepts(const MemoryPlan& plan);
    bool is_exhausted() const { return !plans_.empty() && rung_ >= plans_.size(); }
    // Of the present rung; nothing where no plan was made.
    std::vector<uint32_t> chosen_order() const;
    // Every plan that was found, and which of them the present rung is.
    std::vector<CurvePoint> curve() const;
    // OverLimit: the least limit that is feasible by this ladder or another, what holds it up, and
    // what would help.
    [[noreturn]] void refuse(const PlanLadder& other, const std::string& where) const;

private:
    bool shapes_the_plan() const { return options_.limit != 0 || options_.is_sublinear; }
    std::vector<uint32_t> order(const memory::RematProblem& problem);
    void search(const memory::RematProblem& problem);
    bool takes_known_order(const memory::RematProblem& problem);
    std::vector<memory::RematPlan> smallest(const std::vector<memory::RematPlan>& plans) const;
    bool wins(const MemoryPlan& plan);
    size_t winner(size_t first, size_t most_bytes) const;
    size_t next_rung() const;
    double expected_bytes(size_t rung) const;

    MemoryOptions options_;
    std::vector<memory::RematPlan> plans_;
    std::vector<CurvePoint> curve_;
    bool is_known_ = false;  // plans_ has the known order alone
    size_t rung_ = 0;
    std::vector<bool> is_tried_;  // by plan
    size_t plain_bytes_ = 0;  // planned_bytes of the first rung
    double bytes_by_peak_ = 1;  // its arena by what the search expected
    std::vector<size_t> planned_bytes_;  // without a limit: of the programs of the rungs so far
    size_t first_quick_ = 0;  // without a limit: plans from there on are those of the short search
    bool is_decided_ = false;
    std::optional<MemoryPlan> least_;  // the smallest program that was seen
};

}  // namespace megjit::jit
