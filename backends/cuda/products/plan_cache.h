// backends/cuda/products/plan_cache.h -- the plans of libraries and the choices of searches, in the
// cache on disk. Any thread may call. An entry that is damaged, or has another key, counts as
// missing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megjit::cuda {

// The first line of a key names the library.
std::optional<std::string> cached_plan(std::string_view key);
void cache_plan(std::string_view key, std::string_view plan);

}  // namespace megjit::cuda
