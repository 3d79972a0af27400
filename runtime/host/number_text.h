// runtime/host/number_text.h -- numbers as text that is the same in every locale. A program may
// have called setlocale, and the C library writes and reads "1,5" from then on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace megjit::runtime {

// What "%.*g" gives in the C locale: 0.1, 1e+20, inf.
std::string number_text(double value, int digits);
// What "%.*f" gives in the C locale.
std::string decimals_text(double value, int decimals);
// The number that the whole text spells, or nothing.
std::optional<double> number_in(std::string_view text);

}  // namespace megjit::runtime
