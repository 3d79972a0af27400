#include "runtime/host/unknown_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace megjit::runtime {
namespace {

// Levenshtein's distance, one row of the table at a time.
size_t edits(std::string_view from, std::string_view to) {
    std::vector<size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 0; i < from.size(); ++i) {
        size_t diagonal = row[0]++;
        for (size_t j = 0; j < to.size(); ++j) {
            const size_t replaced = diagonal + (from[i] != to[j]);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j + 1] + 1, row[j] + 1});
        }
    }
    return row.back();
}

}  // namespace

std::string_view closest(std::string_view word, std::span<const std::string_view> names) {
    std::string_view best;
    size_t fewest = word.size();
    for (const std::string_view name : names) {
        const size_t count = edits(word, name);
        if (count >= fewest || 3 * count > name.size()) continue;
        best = name;
        fewest = count;
    }
    return best;
}

std::string how_to_get_op(std::string_view name) {
    if (!name.starts_with(kCustomPrefix)) return {};
    return "load the library that defines it first: megengine.core.ops.custom.load(path)";
}

}  // namespace megjit::runtime
