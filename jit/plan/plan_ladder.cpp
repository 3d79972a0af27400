#include "jit/plan/plan_ladder.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <tuple>
#include <utility>

#include "jit/plan/costs.h"
#include "memory/step_order.h"
#include "runtime/host/interrupt.h"
#include "runtime/host/size_text.h"
#include "runtime/host/thread_limits.h"

namespace megjit::jit {
namespace {

using runtime::cat;

// Without a limit: the smallest plan that costs about one more forward pass.
constexpr double kMostCostWithoutLimit = 1.35;

// Under a limit the search looks where the sub-linear search does by default, so that it finds all
// plans of that search.
constexpr int kThresholds = 10;

// So many of the last plans that cost no more are planned, and the smallest wins: the search sees
// neither kernels nor gaps between buffers.
constexpr size_t kFinalists = 4;
constexpr double kFarFromSmallest = 1.25;
constexpr double kAsSmall = 1.03;

// For the curve the next program that is looked at takes so much of the one before.
constexpr double kNextOnCurve = 0.985;

// For a limit the search goes on by genetic rounds, as many as take a second or so: what a round
// takes grows with the square of the steps.
constexpr int kMostRounds = 6;
constexpr double kMostBred = 1.5e6;

// No program takes less than so much of what is expected of it. A plan by the search's count and
// its arena differ by a few percent where no kernels are generated; where they are, by about as
// much as for the plain program.
constexpr double kLeastOfExpected = 0.9;
// For plans that the sub-linear search always makes: a limit that it keeps must not be refused.
// (Seen: 0.894, where a gradient of 147 MiB found its place in one plan of many.)
constexpr double kLeastOfFinalist = 0.85;

// Where no plan keeps the limit, only programs that are expected to be so near to the smallest may
// be smaller still.
constexpr double kNearSmallest = 0.95;

// A ladder without kernels takes the plans that the one with kernels has found where a search takes
// long: they differ by the costs of steps alone.
constexpr size_t kMostSearchedAgain = 1500;  // steps

// A refusal names the limit of a program without kernels only where that is so much smaller.
constexpr double kWorthNoKernels = 1.001;

// Where no plan keeps the limit, the ladder stops when so many programs in a row are not the
// smallest.
constexpr int kMostInVain = 4;

std::atomic<double> searched = 0;

// Does a pass after the plans of this stage compute again what costs next to nothing? Where it
// does, the stage's plain program is what runs without a limit.
bool is_behind_cheap(Stage stage) { return stage >= Stage::units; }

// A file has one list for an order of any stage. A number that no step has, after the order, marks
// a stage other than `ops`. A reader that does not know the mark searches anew.
uint32_t mark_of(Stage stage) { return UINT32_MAX - static_cast<uint32_t>(stage); }

// Takes the mark off.
Stage stage_of(std::vector<uint32_t>& order) {
    for (const Stage stage : {Stage::whole, Stage::units})
        if (!order.empty() && order.back() == mark_of(stage)) {
            order.pop_back();
            return stage;
        }
    return Stage::ops;
}

int rounds_for(const memory::RematProblem& problem) {
    const auto steps = static_cast<double>(problem.steps.size());
    return static_cast<int>(
        std::min(static_cast<double>(kMostRounds), kMostBred / (steps * steps + 1)));
}

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

PlanLadder::PlanLadder(const MemoryOptions& options) : options_(options) {}

void PlanLadder::beats(const PlanLadder& other) {
    rival_ = {.bytes = other.least_bytes(), .whole = other.whole_};
    for (const Rung& rung : other.rungs_)
        if (rung.stage == Stage::whole) rival_.plans.push_back(rung.plan);
}

PipelineOptions PlanLadder::with_plan(PipelineOptions passes) {
    if (!is_wanted()) return passes;
    may_be_cheap_ = passes.opt_level >= 3;
    has_kernels_ = may_be_cheap_ || passes.fuse;
    passes.recomputes_cheap = is_behind_cheap(stage());
    const auto choose = [this](Stage stage) {
        return [this, stage](const auto& problem) { return order(stage, problem); };
    };
    passes.choose_whole = choose(Stage::whole);
    passes.choose_plan = choose(Stage::ops);
    passes.choose_units = choose(Stage::units);
    if (!options_.spill.empty())
        passes.choose_spill = [this](const SpillProblem& problem) { return spill(problem); };
    return passes;
}

std::vector<uint32_t> PlanLadder::order(Stage stage, const memory::RematProblem& problem) {
    if (rung_ == 0 && !family(stage).is_searched && !takes_known_order(stage, problem) &&
        searches_now())
        search(stage, problem);
    return rungs_[rung_].stage == stage ? rungs_[rung_].plan.order : std::vector<uint32_t>{};
}

memory::SpillPlan PlanLadder::spill(const SpillProblem& problem) {
    if (rung_ == 0 && !family(Stage::spilled).is_searched && searches_now()) search(problem);
    return rungs_[rung_].stage == Stage::spilled ? rungs_[rung_].spill : memory::SpillPlan{};
}

// Finds plans that keep in memory what the call replaces, and plans that keep it in the file from
// call to call.
void PlanLadder::search(const SpillProblem& problem) {
    Family& family = this->family(Stage::spilled);
    family.is_searched = true;
    const size_t plain = memory::spill(problem.steps, {.most_bytes = SIZE_MAX}).peak_bytes;
    family.plain.peak_bytes = plain;
    memory::SpillOptions options{.most_bytes = plain,
                                 .link_bytes = Costs::file_bytes_per_second(options_.spill)};
    memory::SpillOptions outside = options;
    outside.most_bytes = 2 * plain;
    int64_t replaced = 0;
    for (size_t i = 0; i < problem.replaced.size(); ++i) {
        const size_t bytes = problem.steps.values[problem.replaced[i]].bytes;
        if (bytes < options.least_bytes) continue;
        replaced += static_cast<int64_t>(bytes);
        outside.outside_at_start.push_back(problem.replaced[i]);
        outside.outside_at_end.push_back(problem.replacing[i]);
    }
    // A disk may fail until the last step: what stays in memory is replaced by values beside it.
    add(memory::spill_front(problem.steps, options, runtime::check_interrupt), replaced);
    if (replaced)
        add(memory::spill_front(problem.steps, outside, runtime::check_interrupt), -replaced);
}

void PlanLadder::add(std::vector<memory::SpillPlan> plans, int64_t more_elsewhere) {
    for (memory::SpillPlan& plan : plans) {
        if (plan.stores.empty() && plan.fetches.empty()) continue;
        const auto moved = static_cast<double>(plan.written + plan.read);
        rungs_.push_back({.stage = Stage::spilled,
                          .plan = {.peak_bytes = plan.peak_bytes},
                          .extra = plan.seconds + Costs::copy_of_transfer(moved),
                          .more_elsewhere = more_elsewhere,
                          .is_finalist = false});
        rungs_.back().spill = std::move(plan);
    }
}

std::vector<uint32_t> PlanLadder::chosen_order() const {
    const Rung& rung = rungs_[rung_];
    if (rung.stage == Stage::as_it_is) return family(Stage::ops).plain.order;
    std::vector<uint32_t> order = rung.plan.order;  // empty where values move to a file
    if (!order.empty() && rung.stage != Stage::ops) order.push_back(mark_of(rung.stage));
    return order;
}

// The order comes from a file and may be of another graph. Until that is known nothing is searched.
bool PlanLadder::takes_known_order(Stage stage, const memory::RematProblem& problem) {
    std::vector<uint32_t> order = options_.known_order;
    if (order.empty() || !options_.limit) return false;
    if (stage != stage_of(order)) return true;
    std::vector<size_t> runs(problem.steps.size());
    for (uint32_t step : order) {
        if (step >= runs.size()) return true;
        ++runs[step];
    }
    for (size_t i = 0; i < runs.size(); ++i)
        if (runs[i] == 0 || (runs[i] > 1 && !problem.steps[i].repeatable)) return true;
    try {
        memory::RematPlan known = memory::measure(problem, std::move(order));
        is_known_ = true;
        add(stage, {std::move(known)}, true);
    } catch (const std::invalid_argument&) {}
    return true;
}

void PlanLadder::search(Stage stage, const memory::RematProblem& problem) {
    Searching until_the_end;
    memory::RematSearch search = options_.search;
    const bool is_thorough = search.genetic_rounds && stage == Stage::ops;
    if (!options_.is_sublinear) {
        search.thresholds = kThresholds;
        search.workers = runtime::granted_threads();
    }
    const bool breeds = options_.limit || options_.only_looks;
    const auto plans_of = [&](const memory::RematProblem& of, memory::Places places, int rounds) {
        const double before = searched;
        search.places = places;
        search.genetic_rounds = rounds;
        search.watch = [before](double part) {
            runtime::check_interrupt();
            searched = before + (1 - before) * part / 2;
        };
        return memory::rematerialize(of, search);
    };
    const auto run = [&](memory::Places places, int rounds, bool is_quick) {
        add(stage, plans_of(problem, places, rounds), is_quick);
    };
    if (!takes_plans_of_whole(stage, problem) && !takes_plans_of_rival(stage, problem)) {
        run(memory::Places::listed, 0, true);
        run(memory::Places::late, breeds ? rounds_for(problem) : 0, true);
        if (const std::vector<uint32_t> early = memory::early_updates(problem); !early.empty()) {
            std::vector<memory::RematPlan> plans =
                plans_of(memory::in_order(problem, early), memory::Places::late, 0);
            for (memory::RematPlan& plan : plans)
                for (uint32_t& step : plan.order) step = early[step];
            add(stage, std::move(plans), true, true);
        }
    }
    if (is_thorough) run(memory::Places::late, options_.search.genetic_rounds, false);
}

// Without passes in between, the plans of stage whole are those of this stage.
bool PlanLadder::takes_plans_of_whole(Stage stage, const memory::RematProblem& problem) {
    if (stage == Stage::whole) whole_ = problem;
    if (stage != Stage::ops || problem != whole_) return false;
    for (Rung& rung : rungs_)
        if (rung.stage == Stage::whole) rung.stage = Stage::ops;
    family(stage) = family(Stage::whole);
    return true;
}

bool PlanLadder::takes_plans_of_rival(Stage stage, const memory::RematProblem& problem) {
    memory::RematProblem& known = rival_.whole;
    if (stage != Stage::whole || rival_.plans.empty() ||
        problem.steps.size() < kMostSearchedAgain || problem.steps.size() != known.steps.size())
        return false;
    for (size_t i = 0; i < problem.steps.size(); ++i) known.steps[i].cost = problem.steps[i].cost;
    if (problem != known) return false;
    std::vector<memory::RematPlan> plans = {memory::plain_plan(problem)};
    for (memory::RematPlan& plan : std::exchange(rival_.plans, {})) {
        plan.cost = 0;
        for (const uint32_t step : plan.order) plan.cost += problem.steps[step].cost;
        plans.push_back(std::move(plan));
    }
    add(stage, std::move(plans), true);
    return true;
}

// The plain order of what runs without a limit is the first rung.
void PlanLadder::add(Stage stage, std::vector<memory::RematPlan> plans, bool is_quick,
                     bool has_early_updates) {
    Family& family = this->family(stage);
    const bool has_plain = std::exchange(family.is_searched, true);
    if (!has_plain) family.plain = plans[0];
    const auto [first, last] = finalists(plans);
    for (size_t i = 0; i < plans.size(); ++i) {
        const bool is_plain = i == 0 && !is_known_ && !has_early_updates;
        if (is_plain && (has_plain || is_like_the_first_rung(stage))) continue;
        rungs_.push_back({.stage = stage,
                          .extra = plans[i].cost - family.plain.cost,
                          .is_quick = is_quick,
                          .has_early_updates = has_early_updates,
                          .is_finalist = first <= i && i <= last});
        rungs_.back().plan = std::move(plans[i]);
    }
}

bool PlanLadder::is_like_the_first_rung(Stage stage) const {
    return is_behind_cheap(stage) || !may_be_cheap_;
}

// Gives, without a limit, the last plan within the cost of one more forward pass, and a few before.
std::pair<size_t, size_t> PlanLadder::finalists(const std::vector<memory::RematPlan>& plans) const {
    size_t last = 0;
    while (last + 1 < plans.size() && plans[last].peak_bytes > options_.enough_bytes &&
           plans[last + 1].cost <= kMostCostWithoutLimit * plans[0].cost)
        ++last;
    size_t first = last;
    while (first > 0 && last - first + 1 < kFinalists &&
           static_cast<double>(plans[first - 1].peak_bytes) <=
               kFarFromSmallest * static_cast<double>(plans[last].peak_bytes))
        --first;
    return {first, last};
}

// The winner is the cheapest of those finalists (of the quick search alone) that take no more than
// so many bytes and are as small as the smallest, but for kAsSmall.
size_t PlanLadder::winner(bool only_quick, size_t most_bytes) const {
    std::vector<size_t> finalists;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < rungs_.size(); ++i) {
        if (!rungs_[i].planned_bytes || (only_quick && !rungs_[i].is_quick)) continue;
        finalists.push_back(i);
        least = std::min(least, *rungs_[i].planned_bytes);
    }
    const auto rank = [&](size_t i) {
        const size_t bytes = *rungs_[i].planned_bytes;
        const bool is_larger = static_cast<double>(bytes) > kAsSmall * static_cast<double>(least);
        return std::make_tuple(bytes > most_bytes, is_larger, rungs_[i].extra, bytes);
    };
    return *std::ranges::min_element(finalists, {}, rank);
}

// The curve needs no program of a plan that is expected to be no smaller than a cheaper one. The
// first plan of a stage says what to expect of the others.
bool PlanLadder::is_looked_at(size_t rung) const {
    if (options_.is_sublinear) return rungs_[rung].is_finalist;
    if (!family(rungs_[rung].stage).planned_bytes) return true;
    double least = static_cast<double>(SIZE_MAX);
    for (size_t i = 0; i < rung; ++i)
        if (rungs_[i].planned_bytes)
            least = std::min(least, static_cast<double>(*rungs_[i].planned_bytes));
    return expected_bytes(rungs_[rung]) < kNextOnCurve * least;
}

// Without a limit all finalists are planned; for the curve those plans that are on it, and the
// first runs. A longer search never ends with more memory than the short one alone.
bool PlanLadder::wins() {
    if (is_decided_) return true;
    const size_t planned = rung_;
    for (size_t next = rung_ + 1; next < rungs_.size(); ++next)
        if (is_looked_at(next)) {
            rung_ = next;
            return false;
        }
    is_decided_ = true;
    rung_ =
        options_.is_sublinear ? winner(false, *rungs_[winner(true, SIZE_MAX)].planned_bytes) : 0;
    return rung_ == planned;
}

bool PlanLadder::accepts(const MemoryPlan& plan) {
    note(plan);
    if (!options_.limit) return wins();
    if (plan.planned_bytes <= options_.limit) return true;
    if (is_proved_in_vain()) {
        rung_ = rungs_.size();
        return false;
    }
    if (waits_for_first_rung() && options_.known_order.empty() && !std::exchange(may_search_, true))
        return false;
    if (!options_.known_order.empty() && is_known_ == (rung_ > 0)) {
        // It is of another graph, or made for a device, or kernels, that need less.
        options_.known_order.clear();
        Rival rival = std::move(rival_);
        *this = PlanLadder(options_);
        rival_ = std::move(rival);
        may_search_ = true;
        return false;
    }
    rung_ = next_rung();
    return false;
}

// Without kernels all programs of a graph have the same steps, so the bound of one holds for all.
// No other plan keeps the limit then, and none is so much smaller that a refusal would name it.
// With a file behind memory the bound does not hold.
bool PlanLadder::is_proved_in_vain() const {
    const auto least = static_cast<double>(std::min(rival_.bytes, least_->planned_bytes));
    return !has_kernels_ && options_.spill.empty() && bound_.bytes > options_.limit &&
           kWorthNoKernels * static_cast<double>(bound_.bytes) >= least;
}

void PlanLadder::note(const MemoryPlan& plan) {
    const double expected = rung_ > 0 ? expected_bytes(rungs_[rung_]) : 0;
    if (!least_ || plan.bound.bytes < bound_.bytes) bound_ = plan.bound;
    if (!least_ || plan.planned_bytes < least_->planned_bytes) least_ = plan;
    rungs_[rung_].planned_bytes = plan.planned_bytes;
    for (const Stage stage : {Stage::whole, Stage::ops, Stage::units, Stage::spilled}) {
        Family& family = this->family(stage);
        const bool is_plain = rung_ == 0 ? is_like_the_first_rung(stage)
                                         : rungs_[rung_].stage == stage && !family.planned_bytes;
        if (rungs_[rung_].stage == stage && expected > 0)
            family.excess[rungs_[rung_].has_early_updates] =
                static_cast<double>(plan.planned_bytes) - expected;
        if (!is_plain) continue;
        const size_t peak = rung_ == 0 ? family.plain.peak_bytes : rungs_[rung_].plan.peak_bytes;
        family.planned_bytes = plan.planned_bytes;
        family.peak_bytes = peak;
        family.bytes_by_peak =
            static_cast<double>(plan.arena_bytes) / static_cast<double>(std::max<size_t>(peak, 1));
    }
    if (rung_ > 0) return;
    std::stable_sort(rungs_.begin() + 1, rungs_.end(),
                     [](const Rung& a, const Rung& b) { return a.extra < b.extra; });
}

// The cheapest rung that may fit; where none does, one that may be the smallest: a refusal names
// the least limit.
size_t PlanLadder::next_rung() {
    for (size_t rung = 0; rung < rungs_.size(); ++rung)
        if (may_take(rung, options_.limit)) return rung;
    const bool is_least = rungs_[rung_].planned_bytes == least_->planned_bytes;
    tries_in_vain_ = rung_ == 0 || is_least ? 0 : tries_in_vain_ + 1;
    const size_t least = std::min(rival_.bytes, least_->planned_bytes);
    size_t next = rungs_.size();
    if (tries_in_vain_ < kMostInVain)
        for (size_t rung = rungs_.size(); rung-- > 0;)
            if (!rungs_[rung].planned_bytes &&
                kNearSmallest * likely_bytes(rungs_[rung]) <= static_cast<double>(least) &&
                (next == rungs_.size() || likely_bytes(rungs_[rung]) < likely_bytes(rungs_[next])))
                next = rung;
    return next < rungs_.size() ? next : least_of_unknown(least);
}

// By how much the programs of a stage are smaller than expected is known once one beside the plain
// one was made: the smallest plan of a stage and order of which none was, where it may take so few
// bytes.
size_t PlanLadder::least_of_unknown(size_t bytes) const {
    size_t next = rungs_.size();
    const auto is_unknown = [&](const Rung& rung) {
        return rung.stage != Stage::as_it_is && !family(rung.stage).excess[rung.has_early_updates];
    };
    for (size_t rung = 1; rung < rungs_.size(); ++rung)
        if (is_unknown(rungs_[rung]) && may_take(rung, bytes) &&
            (next == rungs_.size() || expected_bytes(rungs_[rung]) < expected_bytes(rungs_[next])))
            next = rung;
    return next;
}

bool PlanLadder::may_take(size_t rung, size_t bytes) const {
    const double least = rungs_[rung].is_finalist ? kLeastOfFinalist : kLeastOfExpected;
    return !rungs_[rung].planned_bytes &&
           least * expected_bytes(rungs_[rung]) <= static_cast<double>(bytes);
}

// An arena takes as many times the search's count as that of the plain program: what it takes more
// (of values that kernels make later) gets fewer with the values that are kept. Returns 0 where no
// program of its stage has been seen.
double PlanLadder::expected_bytes(const Rung& rung) const {
    if (rung.planned_bytes) return static_cast<double>(*rung.planned_bytes);
    if (rung.stage == Stage::as_it_is) return 0;
    const Family& family = this->family(rung.stage);
    if (!family.planned_bytes) return 0;
    const auto less =
        static_cast<double>(family.peak_bytes) - static_cast<double>(rung.plan.peak_bytes);
    return static_cast<double>(family.planned_bytes) - less * family.bytes_by_peak +
           static_cast<double>(rung.more_elsewhere);
}

double PlanLadder::likely_bytes(const Rung& rung) const {
    if (rung.stage == Stage::as_it_is) return expected_bytes(rung);
    const std::optional<double>& excess = family(rung.stage).excess[rung.has_early_updates];
    return expected_bytes(rung) + excess.value_or(0);
}

TransferTimes PlanLadder::transfers() const {
    const memory::SpillPlan& plan = rungs_[rung_].spill;
    return {.seconds = plan.transfer_seconds, .waited = plan.seconds};
}

std::vector<CurvePoint> PlanLadder::curve() const {
    if (!family(Stage::ops).is_searched) return {};
    std::vector<CurvePoint> points;
    const double plain = family(Stage::ops).plain.cost;
    for (size_t i = 0; i < rungs_.size(); ++i)
        if (const double bytes = expected_bytes(rungs_[i]); bytes > 0 || i == rung_)
            points.push_back({.bytes = static_cast<size_t>(bytes),
                              .seconds = plain + rungs_[i].extra,
                              .is_chosen = i == rung_});
    if (is_exhausted()) return points;
    // A plan that costs more than another and is not smaller is on no curve; the chosen plan is.
    const auto chosen = std::ranges::find_if(points, &CurvePoint::is_chosen);
    std::vector<CurvePoint> curve;
    for (const CurvePoint& point : points) {
        if (!point.is_chosen) {
            const bool is_smaller = point.bytes < chosen->bytes;
            if (is_smaller != (point.seconds > chosen->seconds)) continue;
            if (!curve.empty() && point.bytes >= curve.back().bytes) continue;
            if (!is_smaller && point.bytes == chosen->bytes) continue;
        }
        curve.push_back(point);
    }
    return curve;
}

constexpr size_t kMostTold = 8;  // a network may have many small values
constexpr size_t kMostToldOutside = 3;

void PlanLadder::refuse(const PlanLadder& other, const std::string& where) const {
    if (other.least_ && static_cast<double>(other.least_->planned_bytes) * kWorthNoKernels <
                            static_cast<double>(least_->planned_bytes))
        other.refuse(*this, where);
    const size_t elsewhere = least_->planned_bytes - least_->arena_bytes;
    const MemoryPlan::Bound& bound =
        other.least_ && other.bound_.bytes < bound_.bytes ? other.bound_ : bound_;
    const std::string what_helps =
        elsewhere > least_->arena_bytes ? "a smaller model, or fewer results" : "a smaller batch";
    const LimitFigures figures{
        .limit = options_.limit, .needed = least_->planned_bytes, .bound = bound.bytes};
    throw OverLimit(
        figures, bound.why,
        {.what = told(figures),
         .why = cat("inputs, parameters and results take ", runtime::size_text(elsewhere), " (",
                    join(largest_outside_arena(*least_, kMostToldOutside)),
                    "), and even with recomputation these are alive at once: ",
                    join(largest_at_peak(*least_, kMostTold, 0.9)), "; no plan is below ",
                    runtime::bytes_text(bound.bytes, least_->planned_bytes), ": ", bound.why),
         .fix = cat("raise the limit to ", least_->planned_bytes, ", or take ", what_helps),
         .at = where});
}

}  // namespace megjit::jit
