// jit/plan/plan_ladder.h -- PlanLadder: every plan of recomputation that is known for one graph, on
// one ladder, and the cheapest of them that fits into the memory that is allowed.
//
// The first rung is the program that runs without a limit. The others are plans of one search for
// each stage (Stage) that the graph passes. Each rung is judged by the layout of its program. The
// rungs do not depend on the limit, and they are tried in order: so more memory never gives a
// slower plan, and less memory never a larger peak. Rungs that cannot fit by the search's
// count are left out. Nothing is searched where the first rung keeps the limit.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jit/plan/memory_plan.h"
#include "jit/plan/over_limit.h"
#include "jit/plan/passes/passes.h"
#include "memory/rematerialize.h"

namespace megjit::jit {

// How much of the search for plans in this process is done, 0 to 1; 0 where none runs.
// A thread that shows progress asks while another one searches.
double searched_part();

// Where a search stands in the pipeline, and what its plans order: ops as they are recorded, where
// a normalization is one op; ops before kernels are made of them, so that what runs again goes
// into its readers' kernels; kernels and ops that run. spilled: the same, some of whose results
// wait in a file. as_it_is: no plan.
enum class Stage : uint8_t { whole, ops, units, spilled, as_it_is };
constexpr size_t kSearchedStages = 4;

class PlanLadder {
public:
    explicit PlanLadder(const MemoryOptions& options);
    bool is_wanted() const {
        return options_.limit != 0 || options_.is_sublinear || options_.only_looks;
    }

    // This ladder does not find again what `other` found: where no plan keeps the limit, this one
    // looks for smaller plans than the smallest of the other. The other one is refused.
    void beats(const PlanLadder& other);

    // A pipeline that makes the graph of the rung where the ladder stands. The ladder outlives it,
    // unmoved. Ladders search while the pipeline of the first rung runs: under a limit once more,
    // when its program has been found to be too large.
    PipelineOptions with_plan(PipelineOptions passes);

    // Does this program, made of the present rung, fit? If not, the ladder stands on the next rung
    // that may.
    bool accepts(const MemoryPlan& plan);
    bool is_exhausted() const { return rung_ >= rungs_.size(); }
    Stage stage() const { return rungs_[rung_].stage; }  // of the present rung
    // A file finds the present rung again by this without a search: an order of steps, and after it
    // their stage; for the program without a limit the plain order. It is empty where values move
    // to a file.
    std::vector<uint32_t> chosen_order() const;
    // The plans that are worth their memory, and which of them the present rung is.
    std::vector<CurvePoint> curve() const;
    TransferTimes transfers() const;  // of the present rung
    // OverLimit: the least limit that is feasible by this ladder or another, what holds it up, and
    // what would help.
    [[noreturn]] void refuse(const PlanLadder& other, const std::string& where) const;

private:
    struct Rung {
        Stage stage = Stage::as_it_is;
        memory::RematPlan plan = {};
        memory::SpillPlan spill = {};  // of Stage::spilled
        double extra = 0;  // seconds more than the plain order takes, as far as the search knows
        int64_t more_elsewhere = 0;  // bytes beside the arena, less those of the first rung
        bool is_quick = true;  // the search without genetic rounds has found it
        bool has_early_updates = false;
        bool is_finalist = true;  // without a limit: its program is looked at
        std::optional<size_t> planned_bytes = {};  // of its program, once that was made
    };
    // What is known of the plans of a stage.
    struct Family {
        bool is_searched = false;
        memory::RematPlan plain = {};  // its first one
        // The first program that was made of one of these plans takes so much; 0: there is none.
        size_t planned_bytes = 0;
        size_t peak_bytes = 0;  // as the search has it
        double bytes_by_peak = 1;  // the arena by that
        // Bytes that its last program took more than expected, by has_early_updates: kernels hold
        // other values in that order. Nothing: no program beside the plain one was made.
        std::array<std::optional<double>, 2> excess = {};
    };

    std::vector<uint32_t> order(Stage stage, const memory::RematProblem& problem);
    memory::SpillPlan spill(const SpillProblem& problem);
    void search(const SpillProblem& problem);
    bool takes_known_order(Stage stage, const memory::RematProblem& problem);
    bool waits_for_first_rung() const { return options_.limit && !options_.only_looks; }
    bool searches_now() const { return may_search_ || !waits_for_first_rung(); }
    bool takes_plans_of_whole(Stage stage, const memory::RematProblem& problem);
    bool takes_plans_of_rival(Stage stage, const memory::RematProblem& problem);
    bool is_proved_in_vain() const;
    void search(Stage stage, const memory::RematProblem& problem);
    void add(std::vector<memory::SpillPlan> plans, int64_t more_elsewhere);
    void add(Stage stage, std::vector<memory::RematPlan> plans, bool is_quick,
             bool has_early_updates = false);
    bool is_like_the_first_rung(Stage stage) const;  // is its plain program?
    std::pair<size_t, size_t> finalists(const std::vector<memory::RematPlan>& plans) const;
    size_t winner(bool only_quick, size_t most_bytes) const;
    bool is_looked_at(size_t rung) const;
    bool wins();
    void note(const MemoryPlan& plan);
    Family& family(Stage stage) { return families_[static_cast<size_t>(stage)]; }
    const Family& family(Stage stage) const { return families_[static_cast<size_t>(stage)]; }
    size_t next_rung();
    bool may_take(size_t rung, size_t bytes) const;  // so few bytes; and is its program not made?
    size_t least_of_unknown(size_t bytes) const;
    size_t least_bytes() const { return least_ ? least_->planned_bytes : SIZE_MAX; }
    double expected_bytes(const Rung& rung) const;
    // As expected, and as much more as the last program of its stage and order took more.
    double likely_bytes(const Rung& rung) const;

    MemoryOptions options_;
    std::vector<Rung> rungs_ = {Rung{}};
    std::array<Family, kSearchedStages> families_;  // by stage
    // The problem of stage whole: without passes between the stages the next has the same one.
    memory::RematProblem whole_;
    size_t rung_ = 0;
    struct Rival {
        size_t bytes = SIZE_MAX;  // of its smallest program
        memory::RematProblem whole = {};
        std::vector<memory::RematPlan> plans = {};  // of stage whole
    };
    Rival rival_;
    int tries_in_vain_ = 0;  // where no rung keeps the limit: none of them was the smallest
    bool has_kernels_ = false;
    bool may_be_cheap_ = false;  // does the first rung compute again what costs next to nothing?
    bool is_known_ = false;  // there is one more rung, the known order
    bool is_decided_ = false;
    bool may_search_ = false;  // the first rung does not keep the limit
    std::optional<MemoryPlan> least_;  // the smallest program that was seen
    MemoryPlan::Bound bound_;  // the smallest of their bounds
};

}  // namespace megjit::jit
