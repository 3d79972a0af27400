// runtime/host/unknown_name.h -- what messages say about a name that nothing has.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace megjit::runtime {

// Returns the name with the fewest edits (inserted, dropped or replaced letters) to `word`;
// empty if even that differs in more than a third of its letters.
std::string_view closest(std::string_view word, std::span<const std::string_view> names);

// How the names of ops begin in the registry that users' libraries bring.
inline constexpr std::string_view kCustomPrefix = "custom.";

// The way out for an op that is not registered; empty if there is none.
std::string how_to_get_op(std::string_view name);

}  // namespace megjit::runtime
