#include "runtime/host/number_text.h"

#include <charconv>
#include <iterator>

namespace megjit::runtime {

std::string number_text(double value, int digits) {
    char text[40];
    return {text,
            std::to_chars(text, std::end(text), value, std::chars_format::general, digits).ptr};
}

std::string decimals_text(double value, int decimals) {
    char text[400];  // the largest double has 309 digits before its point
    return {text,
            std::to_chars(text, std::end(text), value, std::chars_format::fixed, decimals).ptr};
}

std::optional<double> number_in(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return {};
    return value;
}

}  // namespace megjit::runtime
