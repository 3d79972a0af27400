// runtime/core/rematerializer.h -- eager values that are dropped when memory is short and computed
// again when they are read: which call made them, from what. An EvictionPolicy chooses which one
// goes.
//
// A value is a Storage with memory from the allocator. The first recorded call that makes or reads
// one gives it a Lineage, which then owns the memory. Values that no recorded call made
// (parameters, batches) are sources: they stay while a value that is to be computed again needs
// them. An evicted Storage has no data; Storage::data() brings them back, and Pins hold them there.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runtime/core/device.h"
#include "runtime/core/eviction.h"
#include "runtime/host/mutex.h"

namespace megjit::runtime {

class Lineage;
struct LineageCall;

// A lock that its thread may take again: restoring a value allocates, and so may evict others.
class ReentrantMutex {
public:
    ReentrantMutex(const char* name, Rank rank) : mutex_(name, rank) {}
    void lock() {
        if (owner_ != std::this_thread::get_id()) mutex_.lock();
        owner_ = std::this_thread::get_id();
        ++depth_;
    }
    void unlock() {
        if (--depth_ > 0) return;
        owner_ = std::thread::id();
        mutex_.unlock();
    }

private:
    Mutex mutex_;
    std::atomic<std::thread::id> owner_;
    int depth_ = 0;
};

// Every call is safe from any thread.
class Rematerializer {
public:
    struct Settings {
        bool is_on = false;
        size_t threshold = 0;  // bytes in use on a device; 0: no bound
        size_t least_bytes = size_t{1} << 20;  // a tensor of fewer bytes is never evicted
        bool samples = false;  // the policy looks at about sqrt(n) of n candidates
    };
    struct Stats {
        uint64_t values = 0;  // values that have a lineage now
        uint64_t evictions = 0;
        uint64_t recomputations = 0;
        double recompute_seconds = 0;
    };

    static Rematerializer& instance();
    static bool is_on() { return is_on_.load(std::memory_order_relaxed); }

    void set_policy(std::unique_ptr<EvictionPolicy> policy) {
        policy_ = std::move(policy);
    }  // to be called before it is first turned on
    // Values that were evicted before it is turned off still come back when they are read.
    void configure(const Settings& settings);
    Stats stats();

    // Evicts until `bytes` more stay below the threshold and the device has them. Throws
    // OutOfMemory.
    void* allocate(Device& device, size_t bytes);
    // `outputs` were computed in `seconds`. The inputs are pinned.
    void note_call(const OpCall& call, std::span<const Ref<Tensor>> inputs,
                   std::span<const Ref<Tensor>> outputs,
                   const std::shared_ptr<const Executable>& executable, double seconds);
    // The tensor's data never move or go from now on: somebody keeps their address.
    void keep(const Tensor& tensor);

private:
    friend class Storage;
    friend class Lineage;
    friend class Pins;

    void* bring_back(Storage& storage);  // the data, which stay as long as nothing else is evicted
    bool is_needed_again(const Storage& storage);
    void on_drop(Storage& storage);  // called when the last tensor releases the storage
    void on_unused(Lineage& lineage);  // called when the last call releases it

    Lineage& lineage_of(Storage& storage);
    Lineage& add_lineage(Storage& storage, double cost,
                         std::span<const EvictionPolicy::Id> parents);
    void make_room(Device& device, size_t bytes);
    bool evict_one();
    void free_data(Lineage& lineage);
    void restore(Lineage& target);
    void recompute(Lineage& target, LineageCall& call);
    void adopt(Lineage& lineage, Storage& fresh);
    void pin(Lineage& lineage);
    void unpin(Lineage& lineage);
    void offer_or_withdraw(Lineage& lineage);
    void make_source(Lineage& lineage);
    static bool is_worth_keeping(const Lineage& source);
    void add_orphan(Lineage& lineage);
    void remove_orphan(Lineage& lineage);
    bool cut_off(Lineage& orphan);
    bool cut_off_orphans(size_t enough_bytes);
    void destroy(Lineage& lineage);

    static std::atomic<bool> is_on_;
    ReentrantMutex mutex_{"evicted values", Rank::evictions};
    std::unique_ptr<EvictionPolicy> policy_;
    Settings settings_;
    Stats stats_;
    std::vector<Lineage*> by_id_;
    std::map<uint64_t, Lineage*> orphans_;  // sources that calls read and no tensor holds; by age
    uint64_t next_orphan_ = 1;
    size_t orphan_bytes_ = 0, orphan_limit_ = 0;
    Lineage* unused_ = nullptr;  // a linked list of lineages that are about to be destroyed
    bool is_destroying_ = false;
};

// Brings values back, and keeps them in memory while it lives. Does nothing while the
// rematerializer is off.
class Pins {
public:
    Pins() = default;
    explicit Pins(std::span<const Ref<Tensor>> tensors) : Pins() {
        if (Rematerializer::is_on()) [[unlikely]]
            add(tensors);
    }
    ~Pins() {
        if (!pinned_.empty()) release();
    }
    Pins(const Pins&) = delete;

private:
    friend class Rematerializer;
    void add(std::span<const Ref<Tensor>> tensors);  // skips null ones
    void add(Lineage& lineage);
    void release();
    std::vector<Lineage*> pinned_;  // each is held by one of our references
};

}  // namespace megjit::runtime
