#include "runtime/host/size_text.h"

#include <iterator>

#include "runtime/host/error.h"
#include "runtime/host/number_text.h"

namespace megjit::runtime {

namespace {

constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
constexpr int kMostDecimals = 10;  // enough to show a byte in a terabyte

std::string with_decimals(size_t bytes, int decimals) {
    double size = static_cast<double>(bytes);
    size_t unit = 0;
    for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
    return cat(decimals_text(size, unit ? decimals : 0), " ", kUnits[unit]);
}

}  // namespace

std::string size_text(size_t bytes, std::optional<size_t> beside) {
    int decimals = 1;
    if (beside && *beside != bytes)
        while (decimals < kMostDecimals &&
               with_decimals(bytes, decimals) == with_decimals(*beside, decimals))
            ++decimals;
    return with_decimals(bytes, decimals);
}

std::string bytes_text(size_t bytes, std::optional<size_t> beside) {
    if (bytes < 1024) return cat(bytes, " bytes");
    return cat(bytes, " bytes (", size_text(bytes, beside), ")");
}

}  // namespace megjit::runtime
