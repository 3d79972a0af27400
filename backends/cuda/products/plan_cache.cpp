#include "backends/cuda/products/plan_cache.h"

#include <mutex>

#include "codegen/disk_cache.h"

namespace megjit::cuda {
namespace {

// Calls `use` with the cache, one thread at a time.
template <class Use>
auto with_cache(const Use& use) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    static codegen::DiskCache disk(codegen::default_cache_folder());
    return use(disk);
}

}  // namespace

std::optional<std::string> cached_plan(std::string_view key) {
    return with_cache([&](codegen::DiskCache& disk) { return disk.find(key); });
}

void cache_plan(std::string_view key, std::string_view plan) {
    with_cache([&](codegen::DiskCache& disk) { return disk.store(key, plan); });
}

}  // namespace megjit::cuda
