// runtime/host/size_text.h -- sizes as users read them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace megjit::runtime {

// "44.2 KiB". With another size `beside` it, as many decimals as tell the two apart.
std::string size_text(size_t bytes, std::optional<size_t> beside = {});

// "45240 bytes (44.2 KiB)", or "800 bytes".
std::string bytes_text(size_t bytes, std::optional<size_t> beside = {});

}  // namespace megjit::runtime
