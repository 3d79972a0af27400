// memory/system_pages.h -- pages of the host, from the system.
#pragma once

#include <memory>

#include "runtime/core/page_source.h"

namespace megjit::memory {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

std::unique_ptr<runtime::PageSource> system_pages();

}  // namespace megjit::memory
