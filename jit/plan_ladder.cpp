#include "jit/plan_ladder.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <tuple>

#include "runtime/host/interrupt.h"
#include "runtime/host/size_text.h"

namespace megjit::jit {
namespace {

using runtime::cat;

// Without a limit: the smallest plan that costs about one more forward pass.
constexpr double kMostCostWithoutLimit = 1.35;
constexpr double kBeyond = 0.65;  // the way to a plan that costs less may lead over others

// So many of the last plans that cost no more are planned, and the smallest wins: the search sees
// neither kernels nor gaps between buffers.
constexpr size_t kFinalists = 4;
constexpr double kFarFromSmallest = 1.25;
constexpr double kAsSmall = 1.03;

// No program takes less than so much of what is expected of it. A plan by the search's count and
// its arena differ by a few percent where no kernels are generated; where they are, by about as
// much as for the plain program.
constexpr double kLeastOfExpected = 0.9;

std::atomic<double> searched = 0;

struct Searching {
    ~Searching() { searched = 0; }
};

std::string join(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
    return text;
}

}  // namespace

double searched_part() { return searched; }

PipelineOptions PlanLadder::with_plan(PipelineOptions passes) {
    if (is_wanted())
        passes.choose_plan = [this](const memory::RematProblem& problem) { return order(problem); };
    return passes;
}

std::vector<uint32_t> PlanLadder::order(const memory::RematProblem& problem) {
    if (plans_.empty() && !takes_known_order(problem)) search(problem);
    if (!shapes_the_plan()) return {};
    return plans_[std::min(rung_, plans_.size() - 1)].order;
}

std::vector<uint32_t> PlanLadder::chosen_order() const {
    return rung_ < plans_.size() ? plans_[rung_].order : std::vector<uint32_t>();
}

// It comes from a file: it may be of another graph.
bool PlanLadder::takes_known_order(const memory::RematProblem& problem) {
    const std::vector<uint32_t> order = std::exchange(options_.known_order, {});
    std::vector<size_t> runs(problem.steps.size());
    for (uint32_t step : order) {
        if (step >= runs.size()) return false;
        ++runs[step];
    }
    for (size_t i = 0; i < runs.size(); ++i)
        if (runs[i] == 0 || (runs[i] > 1 && !problem.steps[i].repeatable)) return false;
    try {
        plans_ = {memory::measure(problem, order)};
    } catch (const std::invalid_argument&) { return false; }
    curve_ = {{.bytes = plans_[0].peak_bytes, .seconds = plans_[0].cost}};
    return is_known_ = !order.empty();
}

void PlanLadder::search(const memory::RematProblem& problem) {
    Searching until_the_end;
    memory::RematSearch search = options_.search;
    if (options_.is_sublinear && !options_.limit)
        search.most_cost = kMostCostWithoutLimit + kBeyond;
    search.watch = [&](double part) {
        runtime::check_interrupt();
        searched = part;
    };
    plans_ = memory::rematerialize(problem, search);
    for (const memory::RematPlan& plan : plans_)
        curve_.push_back({.bytes = plan.peak_bytes, .seconds = plan.cost});
    if (options_.is_sublinear && !options_.limit) {
        std::vector<memory::RematPlan> finalists = smallest(plans_);
        memory::RematSearch quicker = search;
        quicker.genetic_rounds = 0;
        first_quick_ = options_.search.genetic_rounds ? finalists.size() : 0;
        if (options_.search.genetic_rounds)
            for (memory::RematPlan& plan : smallest(memory::rematerialize(problem, quicker)))
                finalists.push_back(std::move(plan));
        plans_ = std::move(finalists);
    }
}

std::vector<memory::RematPlan> PlanLadder::smallest(
    const std::vector<memory::RematPlan>& plans) const {
    size_t last = 0;
    while (last + 1 < plans.size() && plans[last].peak_bytes > options_.enough_bytes &&
           plans[last + 1].cost <= kMostCostWithoutLimit * plans[0].cost)
        ++last;
    size_t first = last;
    while (first > 0 && last - first + 1 < kFinalists &&
           static_cast<double>(plans[first - 1].peak_bytes) <=
               kFarFromSmallest * static_cast<double>(plans[last].peak_bytes))
        --first;
    return {plans.begin() + static_cast<ptrdiff_t>(first),
            plans.begin() + static_cast<ptrdiff_t>(last) + 1};
}

// Of the finalists from `first` on that take no more than so many bytes: of those that are as small
// as the smallest, but for kAsSmall, the cheapest.
size_t PlanLadder::winner(size_t first, size_t most_bytes) const {
    const auto least = static_cast<double>(*std::min_element(
        planned_bytes_.begin() + static_cast<ptrdiff_t>(first), planned_bytes_.end()));
    const auto rank = [&](size_t i) {
        const bool is_larger = static_cast<double>(planned_bytes_[i]) > kAsSmall * least;
        return std::make_tuple(planned_bytes_[i] > most_bytes, is_larger, plans_[i].cost,
                               planned_bytes_[i]);
    };
    size_t best = first;
    for (size_t i = first + 1; i < planned_bytes_.size(); ++i)
        if (rank(i) < rank(best)) best = i;
    return best;
}

// Without a limit all finalists are planned. A longer search never ends with more memory than the
// short one alone.
bool PlanLadder::wins(const MemoryPlan& plan) {
    if (is_decided_) return true;
    planned_bytes_.push_back(plan.planned_bytes);
    if (++rung_ < plans_.size()) return false;
    is_decided_ = true;
    rung_ = winner(0, planned_bytes_[winner(first_quick_, SIZE_MAX)]);
    return rung_ + 1 == plans_.size();
}

bool PlanLadder::accepts(const MemoryPlan& plan) {
    if (!least_ || plan.planned_bytes < least_->planned_bytes) least_ = plan;
    if (!shapes_the_plan()) return true;
    if (!options_.limit) return wins(plan);
    if (plan.planned_bytes <= options_.limit) return true;
    if (is_known_) {  // made for a device, or kernels, that need less
        *this = PlanLadder(options_);
        return false;
    }
    is_tried_.resize(plans_.size());
    if (rung_ == 0) {
        plain_bytes_ = plan.planned_bytes;
        bytes_by_peak_ = static_cast<double>(plan.arena_bytes) /
                         static_cast<double>(std::max<size_t>(plans_[0].peak_bytes, 1));
    }
    is_tried_[rung_] = true;
    rung_ = next_rung();
    return false;
}

// The cheapest that may fit; where none does, those that may be the smallest: what is refused names
// the least limit.
size_t PlanLadder::next_rung() const {
    const auto may_take = [&](size_t rung, size_t bytes) {
        return !is_tried_[rung] &&
               kLeastOfExpected * expected_bytes(rung) <= static_cast<double>(bytes);
    };
    for (size_t rung = 0; rung < plans_.size(); ++rung)
        if (may_take(rung, options_.limit)) return rung;
    for (size_t rung = plans_.size(); rung-- > 0;)
        if (may_take(rung, least_->planned_bytes)) return rung;
    return plans_.size();
}

double PlanLadder::expected_bytes(size_t rung) const {
    const auto less =
        static_cast<double>(plans_[0].peak_bytes) - static_cast<double>(plans_[rung].peak_bytes);
    return static_cast<double>(plain_bytes_) - less * std::min(1.0, bytes_by_peak_);
}

PlanLadder PlanLadder::from_the_top() const {
    PlanLadder ladder(options_);
    ladder.plans_ = plans_;
    ladder.curve_ = curve_;
    ladder.first_quick_ = first_quick_;
    return ladder;
}

std::vector<CurvePoint> PlanLadder::curve() const {
    std::vector<CurvePoint> curve = curve_;
    if (rung_ < plans_.size())
        for (CurvePoint& point : curve)
            point.is_chosen =
                point.bytes == plans_[rung_].peak_bytes && point.seconds == plans_[rung_].cost;
    return curve;
}

constexpr size_t kMostTold = 20;  // of a network of many small values
constexpr size_t kMostToldOutside = 3;

void PlanLadder::refuse(const PlanLadder& other, const std::string& where) const {
    if (other.least_ && other.least_->planned_bytes < least_->planned_bytes)
        other.refuse(*this, where);
    const size_t elsewhere = least_->planned_bytes - least_->arena_bytes;
    const std::string what_helps =
        elsewhere > least_->arena_bytes ? "a smaller model, or fewer results" : "a smaller batch";
    throw OverLimit(
        runtime::ErrorKind::memory,
        {.what =
             cat("memory_limit: a call needs at least ",
                 runtime::bytes_text(least_->planned_bytes, options_.limit), ", and the limit is ",
                 runtime::bytes_text(options_.limit, least_->planned_bytes)),
         .why = cat("inputs, parameters and results take ", runtime::size_text(elsewhere), " (",
                    join(largest_outside_arena(*least_, kMostToldOutside)),
                    "), and even with recomputation these are alive at once: ",
                    join(largest_at_peak(*least_, kMostTold, 0.9))),
         .fix = cat("raise the limit to ", least_->planned_bytes, ", or take ", what_helps),
         .at = where});
}

}  // namespace megjit::jit
