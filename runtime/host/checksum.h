// runtime/host/checksum.h -- sums of bytes that detect accidents; they are no protection against
// attackers.
#pragma once

#include <cstdint>
#include <string_view>

namespace megjit::runtime {

// Sums pieces that threads share, in independent lanes.
uint64_t checksum(std::string_view bytes);

// Sums words of eight bytes, one after the other: for graph files of schemas 1 and 2.
uint64_t checksum_of_words(std::string_view bytes);

}  // namespace megjit::runtime
