#include "memory/dtr.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace megjit::memory {

using Id = DtrPolicy::Id;

Id DtrPolicy::add(size_t bytes, double cost, std::span<const Id> parents, double now) {
    Id id = static_cast<Id>(values_.size());
    if (free_.empty()) {
        values_.emplace_back();
    } else {
        id = free_.back();
        free_.pop_back();
    }
    Value& value = values_[id];
    value.bytes = bytes;
    value.cost = cost;
    value.last_use = now;
    for (const Id parent : parents) {
        if (std::find(value.parents.begin(), value.parents.end(), parent) != value.parents.end())
            continue;
        value.parents.push_back(parent);
        values_[parent].children.push_back(id);
    }
    return id;
}

void DtrPolicy::remove(Id id) {
    withdraw(id);
    if (values_[id].set != kNone) leave_set(id);
    cut(id);
    for (const Id child : values_[id].children) std::erase(values_[child].parents, id);
    values_[id] = {};
    free_.push_back(id);
}

void DtrPolicy::cut(Id id) {
    for (const Id parent : values_[id].parents) std::erase(values_[parent].children, id);
    values_[id].parents.clear();
}

void DtrPolicy::offer(Id id) {
    if (values_[id].place != kNone) return;
    values_[id].place = static_cast<uint32_t>(candidates_.size());
    candidates_.push_back(id);
}

void DtrPolicy::withdraw(Id id) {
    const uint32_t place = values_[id].place;
    if (place == kNone) return;
    candidates_[place] = candidates_.back();
    values_[candidates_[place]].place = place;
    candidates_.pop_back();
    values_[id].place = kNone;
}

uint32_t DtrPolicy::root_of(uint32_t set) {
    uint32_t root = set;
    while (sets_[root].parent != kNone) root = sets_[root].parent;
    while (set != root) set = std::exchange(sets_[set].parent, root);
    return root;
}

void DtrPolicy::join_with_neighbours(Id id) {
    Value& value = values_[id];
    value.set = static_cast<uint32_t>(sets_.size());
    sets_.push_back({.cost = value.cost});
    const auto join = [&](Id other) {
        if (values_[other].set == kNone) return;
        const uint32_t a = root_of(value.set), b = root_of(values_[other].set);
        if (a == b) return;
        sets_[a].parent = b;
        sets_[b].cost += sets_[a].cost;
    };
    for (const Id parent : value.parents) join(parent);
    for (const Id child : value.children) join(child);
}

void DtrPolicy::evicted(Id id) {
    ++evicted_;
    join_with_neighbours(id);
    // Sets whose members returned are left behind. Now and then all sets are made anew, which also
    // corrects the estimate.
    constexpr size_t kSpare = 1024;
    if (sets_.size() > 2 * values_.size() + kSpare) renew_sets();
}

void DtrPolicy::renew_sets() {
    sets_.clear();
    std::vector<Id> members;
    for (Id id = 0; id < values_.size(); ++id)
        if (std::exchange(values_[id].set, kNone) != kNone) members.push_back(id);
    for (const Id id : members) join_with_neighbours(id);
}

void DtrPolicy::leave_set(Id id) {
    Value& value = values_[id];
    Set& root = sets_[root_of(value.set)];
    root.cost = std::max(0.0, root.cost - value.cost);
    value.set = kNone;
    if (--evicted_ == 0) sets_.clear();
}

void DtrPolicy::restored(Id id) { leave_set(id); }

double DtrPolicy::cost_with_neighbours(Id id) {
    const Value& value = values_[id];
    double cost = value.cost;
    roots_.clear();
    const auto count = [&](Id other) {
        if (values_[other].set == kNone) return;
        const uint32_t root = root_of(values_[other].set);
        if (std::find(roots_.begin(), roots_.end(), root) != roots_.end()) return;
        roots_.push_back(root);
        cost += sets_[root].cost;
    };
    for (const Id parent : value.parents) count(parent);
    for (const Id child : value.children) count(child);
    return cost;
}

double DtrPolicy::score(Id id, double now) {
    constexpr double kLeastStaleness =
        1e-9;  // a value used just now goes last, but its score is finite
    const Value& value = values_[id];
    const double staleness = std::max(now - value.last_use, kLeastStaleness);
    return cost_with_neighbours(id) / (static_cast<double>(value.bytes) * staleness);
}

std::optional<Id> DtrPolicy::choose(double now) {
    const size_t count = candidates_.size();
    if (count == 0) return std::nullopt;
    const auto tried =
        samples_ ? static_cast<size_t>(std::ceil(std::sqrt(static_cast<double>(count)))) : count;
    Id best = candidates_.front();
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < tried; ++i) {
        const Id id = candidates_[samples_ ? random_() % count : i];
        const double its = score(id, now);
        if (i > 0 && its >= least) continue;
        least = its;
        best = id;
    }
    return best;
}

}  // namespace megjit::memory
