// backends/cuda/products/plan_cache.h -- what libraries planned and searches chose, in the cache on
// disk. Any thread may call. What is damaged, or of another key, is as if it were not there.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megjit::cuda {

// The first line of a key names the library.
std::optional<std::string> cached_plan(std::string_view key);
void cache_plan(std::string_view key, std::string_view plan);

}  // namespace megjit::cuda
