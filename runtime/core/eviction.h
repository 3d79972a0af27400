// runtime/core/eviction.h -- who goes first when memory is short: the interface of a policy.
// memory/dtr.h is the one there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace megjit::runtime {

// Values are numbers. `now` and costs are seconds; a clock that never goes back is the caller's.
class EvictionPolicy {
public:
    using Id = uint32_t;
    virtual ~EvictionPolicy() = default;

    // A value in memory, made from `parents` in `cost` seconds. It is no candidate before it is
    // offered.
    virtual Id add(size_t bytes, double cost, std::span<const Id> parents, double now) = 0;
    virtual void remove(Id id) = 0;  // the value is never needed again
    virtual void cut(Id id) = 0;  // the value cannot be computed again: it has no parents any more
    virtual void offer(Id id) = 0;  // may be chosen
    virtual void withdraw(Id id) = 0;  // may not
    virtual void evicted(Id id) = 0;  // it must be withdrawn
    virtual void restored(Id id) = 0;
    virtual void touch(Id id, double now) = 0;
    virtual std::optional<Id> choose(double now) = 0;
    virtual void use_sqrt_sampling(bool flag) = 0;
};

}  // namespace megjit::runtime
