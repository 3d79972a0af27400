// runtime/host/checksum.h -- sums of bytes that find accidents; they keep nobody out.
#pragma once

#include <cstdint>
#include <string_view>

namespace megjit::runtime {

// Sums pieces that threads share, in lanes that do not wait for one another.
uint64_t checksum(std::string_view bytes);

// Sums eight bytes after the other: of graph files of schemas 1 and 2.
uint64_t checksum_of_words(std::string_view bytes);

}  // namespace megjit::runtime
