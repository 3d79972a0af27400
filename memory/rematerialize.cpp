#include "memory/rematerialize.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <map>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>

#include "memory/recompute_exact.h"
#include "memory/recompute_greedy.h"
#include "memory/step_order.h"

namespace megjit::memory {
namespace {

// The best plans found so far: none is beaten in both peak and cost.
class Front {
public:
    struct Point {
        Levels levels;
        RematPlan plan;
    };

    void add(const Levels& levels, const RematPlan& plan) {
        const auto after = points_.upper_bound(plan.peak_bytes);
        if (after != points_.begin() && std::prev(after)->second.plan.cost <= plan.cost) return;
        auto next = after;
        while (next != points_.end() && next->second.plan.cost >= plan.cost)
            next = points_.erase(next);
        points_.insert_or_assign(plan.peak_bytes, Point{levels, plan});
    }
    void add(const Front& other) {
        for (const auto& [peak, point] : other.points_) add(point.levels, point.plan);
    }

    // Returns about `count` of them at most, evenly spread over the logarithm of the peak; the
    // first and the last stay.
    std::vector<const Point*> spread(size_t count) const {
        std::vector<const Point*> chosen;
        if (points_.empty()) return chosen;
        const double least = std::log(static_cast<double>(points_.begin()->first) + 1);
        const double stride = (std::log(static_cast<double>(points_.rbegin()->first) + 1) - least) /
                              static_cast<double>(count);
        double next = least;
        for (const auto& [peak, point] : points_) {
            const double here = std::log(static_cast<double>(peak) + 1);
            if (here < next && &point != &points_.rbegin()->second) continue;
            chosen.push_back(&point);
            next = here + stride;
        }
        return chosen;
    }

private:
    std::map<size_t, Point> points_;  // by peak; costs fall with it
};

constexpr size_t kPoints = 32;  // points of a front from which the search goes on
constexpr size_t kPlans = 2 * kPoints;  // plans in the answer
constexpr std::array kWeights = {1.0, 0.25, 0.0};  // values of GreedyOptions::neighbourhood
constexpr size_t kPolishSteps = 150'000;  // simulated steps to polish a front: about 0.1 s

// Tells the waiting caller how far the search is, and learns whether it must stop.
class Progress {
public:
    Progress(const std::function<void(double)>& watch, size_t jobs) : watch_(watch), jobs_(jobs) {}

    // Called now and then, from any thread. Throws the watcher's error; threads of the search's own
    // get Stopped.
    void tick() {
        if (is_stopped_) throw Stopped{};
        if (!watch_ || std::this_thread::get_id() != owner_) return;
        const auto now = Clock::now();
        if (now - last_ < std::chrono::milliseconds(50)) return;
        last_ = now;
        watch_(std::min(1.0, static_cast<double>(done_) / static_cast<double>(jobs_)));
    }

    // Runs jobs 0..count-1 on this thread and others; each writes to its own place.
    template <class Job>
    void in_parallel(size_t count, int workers, const Job& job) {
        std::atomic<size_t> next = 0;
        const auto work = [&] {
            for (size_t i; (i = next++) < count; ++done_) {
                tick();
                job(i);
            }
        };
        std::exception_ptr first;
        std::once_flag failed;
        const auto guarded = [&] {
            try {
                work();
            } catch (const Stopped&) {
            } catch (...) {
                is_stopped_ = true;
                std::call_once(failed, [&] { first = std::current_exception(); });
            }
        };
        {
            std::vector<std::jthread> threads;
            for (int t = 1; t < workers && static_cast<size_t>(t) < count; ++t) try {
                    threads.emplace_back(guarded);
                } catch (const std::system_error&) { break; }  // fewer threads do the work, too
            guarded();
        }
        if (first) std::rethrow_exception(first);
    }

private:
    using Clock = std::chrono::steady_clock;
    struct Stopped {};

    const std::function<void(double)>& watch_;
    size_t jobs_ = 0;
    std::atomic<size_t> done_ = 0;
    std::atomic<bool> is_stopped_ = false;
    std::thread::id owner_ = std::this_thread::get_id();
    Clock::time_point last_ = Clock::now();
};

class Search {
public:
    Search(const RematProblem& problem, const RematSearch& search)
        : schedule_(problem, search.places),
          search_(search),
          progress_(search.watch, jobs_of(search)),
          plain_(schedule_.simulate(schedule_.least_levels)) {}

    std::vector<RematPlan> run() {
        if (schedule_.problem.steps.empty()) return {RematPlan{}};
        explore(starting_points());
        polish();
        clean_up();
        const RematPlan smallest = front_.spread(1).front()->plan;
        for (int round = 0; round < search_.genetic_rounds; ++round) breed(round);
        std::vector<RematPlan> plans;
        for (const Front::Point* point : front_.spread(kPlans)) plans.push_back(point->plan);
        std::reverse(plans.begin(), plans.end());
        if (ExactSearch::is_possible(schedule_))
            return improve_exactly(schedule_, std::move(plans), search_.most_cost);
        keep(smallest, plans);
        return plans;
    }

private:
    // A plan that costs less and has the same peak may have the larger arena. So the smallest plan
    // of a search without genetic rounds stays: what it keeps is kept by a longer search, too.
    static void keep(const RematPlan& smallest, std::vector<RematPlan>& plans) {
        if (std::ranges::find(plans, smallest.order, &RematPlan::order) != plans.end()) return;
        const auto is_smaller = [&](const RematPlan& plan) {
            return plan.peak_bytes < smallest.peak_bytes;
        };
        plans.insert(std::ranges::find_if(plans, is_smaller), smallest);
    }

    struct Start {
        Levels levels;
        GreedyOptions options;
    };

    static size_t jobs_of(const RematSearch& search) {
        const size_t once = static_cast<size_t>(kWeights.size()) +
                            static_cast<size_t>(search.thresholds) + 3 * kPoints;
        return once + static_cast<size_t>(search.genetic_rounds) *
                          (static_cast<size_t>(search.genetic_pool) + kPoints);
    }

    std::vector<Start> starting_points() const {
        std::vector<Start> starts;
        // More levels are needed where a value is computed again for each of several parts, as for
        // the smallest plans of a deep network. Elsewhere they lead away from cheap plans.
        for (double weight : kWeights)
            starts.push_back({schedule_.least_levels,
                              {.neighbourhood = weight,
                               .most_level = weight == kWeights[1] ? kMostLevel : kUsualLevel,
                               .most_cost = search_.most_cost}});
        // The goals go from 1/2 of the peak down to 1/200; the number of tries decides how many lie
        // between.
        for (int t = 0; t < search_.thresholds; ++t) {
            const double part = 0.5 * std::pow(0.01, (t + 0.5) / search_.thresholds);
            const auto bytes =
                static_cast<size_t>(part * static_cast<double>(plain_.plan.peak_bytes));
            Levels levels = cut_in_blocks(schedule_, plain_, std::max<size_t>(bytes, 1));
            const GreedyOptions options{.most_cost = search_.most_cost};
            if (std::ranges::none_of(starts, [&](const Start& start) {
                return start.levels == levels &&
                       start.options.neighbourhood == options.neighbourhood;
            }))
                starts.push_back({std::move(levels), options});
        }
        return starts;
    }

    void explore(const std::vector<Start>& starts) {
        std::vector<Front> fronts(starts.size());
        progress_.in_parallel(starts.size(), search_.workers, [&](size_t i) {
            lower_peak(schedule_, starts[i].levels, starts[i].options,
                       [&](const Levels& levels, const Simulation& now) {
                progress_.tick();
                fronts[i].add(levels, now.plan);
            });
        });
        front_.add(schedule_.least_levels, plain_.plan);
        for (const Front& front : fronts) front_.add(front);
    }

    void clean_up() {
        const std::vector<const Front::Point*> points = front_.spread(kPoints);
        std::vector<Front> fronts(points.size());
        progress_.in_parallel(points.size(), search_.workers, [&](size_t i) {
            Levels levels = points[i]->levels;
            const Simulation now = lower_cost(schedule_, levels, points[i]->plan.peak_bytes);
            fronts[i].add(levels, now.plan);
        });
        for (const Front& front : fronts) front_.add(front);
    }

    // Changes single choices, as often as the time allows: this brings small graphs close to the
    // optimum.
    void polish() {
        const size_t tries = kPolishSteps / schedule_.problem.steps.size();
        for (int round = 0; round < 2; ++round) {
            const std::vector<const Front::Point*> points = front_.spread(kPoints);
            std::vector<Front> fronts(points.size());
            progress_.in_parallel(points.size(), search_.workers, [&](size_t i) {
                std::mt19937 random(static_cast<uint32_t>(i));
                const size_t all = schedule_.gaps.size(),
                             some = std::min(all, tries / points.size());
                for (size_t t = 0; t < some; ++t) {
                    progress_.tick();
                    change_one(points[i]->levels, some == all ? t : random() % all, fronts[i]);
                }
            });
            for (const Front& front : fronts) front_.add(front);
        }
    }

    void change_one(Levels levels, size_t gap, Front& front) const {
        if (!schedule_.is_free(schedule_.gaps[gap].value)) return;
        const uint8_t before = levels[gap],
                      most = schedule_.is_tail(static_cast<uint32_t>(gap)) ? 1 : 2;
        for (uint8_t level = schedule_.least_levels[gap]; level <= most; ++level) {
            if (level == before) continue;
            levels[gap] = level;
            if (const Simulation now = schedule_.simulate(levels); now.is_valid)
                front.add(levels, now.plan);
        }
    }

    // Makes children of plans with similar peaks: the first part of one, the rest of the other, and
    // a few changes.
    void breed(int round) {
        const auto parents = front_.spread(static_cast<size_t>(std::max(search_.genetic_pool, 2)));
        if (parents.empty() || schedule_.gaps.empty()) return;
        std::vector<Front> fronts(static_cast<size_t>(std::max(search_.genetic_pool, 1)));
        progress_.in_parallel(fronts.size(), search_.workers, [&](size_t child) {
            std::seed_seq seed{round, static_cast<int>(child)};
            std::mt19937 random(seed);
            const size_t a = child % parents.size();
            const size_t b = a + 1 < parents.size() ? a + 1 : a;
            Levels levels = parents[a]->levels;
            const auto cut = static_cast<uint32_t>(random() % schedule_.problem.steps.size());
            for (uint32_t gap = 0; gap < levels.size(); ++gap) {
                const uint32_t made_by = schedule_.producer[schedule_.gaps[gap].value];
                if (made_by != kNone && made_by >= cut) levels[gap] = parents[b]->levels[gap];
            }
            mutate(levels, random);
            const Simulation now = schedule_.simulate(levels);
            if (!now.is_valid) return;
            const size_t most = std::max(now.plan.peak_bytes, parents[b]->plan.peak_bytes);
            const Simulation better = lower_cost(schedule_, levels, most);
            fronts[child].add(levels, better.plan);
            lower_peak(schedule_, levels, {.most_cost = 1 + search_.most_cost / 2},
                       [&](const Levels& found, const Simulation& then) {
                progress_.tick();
                fronts[child].add(found, then.plan);
            });
        });
        for (const Front& front : fronts) front_.add(front);
        clean_up();
    }

    void mutate(Levels& levels, std::mt19937& random) const {
        const size_t changes = 1 + random() % (1 + levels.size() / 50);
        for (size_t i = 0; i < changes; ++i) {
            const auto gap = static_cast<uint32_t>(random() % levels.size());
            if (!schedule_.is_free(schedule_.gaps[gap].value)) continue;
            const uint8_t most = schedule_.is_tail(gap) ? 1 : kUsualLevel - 1;
            const auto level = static_cast<uint8_t>(levels[gap] ? random() % (levels[gap] + 1)
                                                                : random() % (most + 1));
            levels[gap] = std::max(level, schedule_.least_levels[gap]);
        }
    }

    RecomputeSchedule schedule_;
    RematSearch search_;
    Progress progress_;
    Simulation plain_;
    Front front_;
};

}  // namespace

std::vector<RematPlan> rematerialize(const RematProblem& problem, const RematSearch& search) {
    const std::vector<uint32_t> order = order_for_peak(problem);
    RematProblem moved{.values = problem.values};
    for (uint32_t step : order) moved.steps.push_back(problem.steps[step]);
    std::vector<RematPlan> plans = {plain_plan(problem)};
    for (RematPlan& plan : Search(moved, search).run()) {
        if (plan.peak_bytes >= plans.front().peak_bytes) continue;
        for (uint32_t& step : plan.order) step = order[step];
        plans.push_back(std::move(plan));
    }
    return plans;
}

RematPlan plain_plan(const RematProblem& problem) {
    const RecomputeSchedule schedule(problem);
    return schedule.simulate(schedule.least_levels).plan;
}

RematPlan thrifty_plan(const RematProblem& problem, double most_cost) {
    const RecomputeSchedule schedule(problem);
    RematPlan smallest = schedule.simulate(schedule.least_levels).plan;
    lower_peak(schedule, schedule.least_levels, {.most_cost = most_cost},
               [&](const Levels&, const Simulation& now) {
        if (now.plan.peak_bytes < smallest.peak_bytes) smallest = now.plan;
    });
    return smallest;
}

RematPlan measure(const RematProblem& problem, std::vector<uint32_t> order) {
    return RecomputeSchedule(problem).measured(std::move(order));
}

}  // namespace megjit::memory
