// memory/dtr.h -- dynamic tensor rematerialization: which value to evict, by the heuristic h = cost
// / (memory * staleness). The cost counts the evicted neighbourhood, for it would have to be
// computed again as well; its size comes from a union-find over evicted values, which forgets no
// edge when a value returns, so that it is an upper estimate. Source: Kirisame et al. 2021,
// "Dynamic Tensor Rematerialization", ICLR.
#pragma once

#include <random>
#include <vector>

#include "runtime/core/eviction.h"

namespace megjit::memory {

class DtrPolicy final : public runtime::EvictionPolicy {
public:
    Id add(size_t bytes, double cost, std::span<const Id> parents, double now) override;
    void remove(Id id) override;
    void cut(Id id) override;
    void offer(Id id) override;
    void withdraw(Id id) override;
    void evicted(Id id) override;
    void restored(Id id) override;
    void touch(Id id, double now) override { values_[id].last_use = now; }
    std::optional<Id> choose(double now) override;
    void use_sqrt_sampling(bool flag) override { samples_ = flag; }

    // What evicting `id` would cost: its own time and that of the evicted values around it.
    double cost_with_neighbours(Id id);

private:
    static constexpr uint32_t kNone = UINT32_MAX;

    struct Value {
        size_t bytes = 0;
        double cost = 0;
        double last_use = 0;
        std::vector<Id> parents, children;
        uint32_t set = kNone;  // its set in the union-find, when evicted
        uint32_t place = kNone;  // its place among the candidates, when offered
    };
    struct Set {
        uint32_t parent = kNone;  // kNone: a root
        double cost = 0;  // for a root: the sum over its members
    };

    uint32_t root_of(uint32_t set);
    void join_with_neighbours(Id id);
    void leave_set(Id id);
    void renew_sets();
    double score(Id id, double now);

    std::vector<Value> values_;
    std::vector<Id> free_;
    std::vector<Id> candidates_;
    std::vector<Set> sets_;
    size_t evicted_ = 0;
    bool samples_ = false;
    std::minstd_rand random_;  // seeded alike: the same run chooses the same values
    std::vector<uint32_t> roots_;  // scratch of cost_with_neighbours
};

}  // namespace megjit::memory
