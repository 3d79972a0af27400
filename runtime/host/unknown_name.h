// runtime/host/unknown_name.h -- what messages say about an unknown name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megjit::runtime {

// Returns the name with the fewest edits (inserted, dropped or replaced letters) to `word`;
// empty if even that differs in more than a third of its letters.
std::string_view closest(std::string_view word, std::span<const std::string_view> names);

// Prefix of the ops in the registry of users' libraries.
inline constexpr std::string_view kCustomPrefix = "custom.";

// What to do about an op that is not registered; empty if there is nothing.
std::string how_to_get_op(std::string_view name);

}  // namespace megjit::runtime
