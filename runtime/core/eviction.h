// runtime/core/eviction.h -- which value goes first when memory is short: the interface of a
// policy. memory/dtr.h implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace megjit::runtime {

// Values are numbers. `now` and costs are seconds; the caller's clock never goes back.
class EvictionPolicy {
public:
    using Id = uint32_t;
    virtual ~EvictionPolicy() = default;

    // Adds a value in memory, made from `parents` in `cost` seconds. It is no candidate before it
    // is offered.
    virtual Id add(size_t bytes, double cost, std::span<const Id> parents, double now) = 0;
    virtual void remove(Id id) = 0;  // the value is never needed again
    virtual void cut(Id id) = 0;  // the value cannot be computed again: it loses its parents
    virtual void offer(Id id) = 0;  // the value may be chosen from now on
    virtual void withdraw(Id id) = 0;  // the value may no longer be chosen
    virtual void evicted(Id id) = 0;  // the value must be withdrawn
    virtual void restored(Id id) = 0;
    virtual void touch(Id id, double now) = 0;
    virtual std::optional<Id> choose(double now) = 0;
    virtual void use_sqrt_sampling(bool flag) = 0;
};

}  // namespace megjit::runtime
