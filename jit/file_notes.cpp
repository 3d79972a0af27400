#include "jit/file_notes.h"

#include <algorithm>

namespace megjit::jit {

FileNotes FileNotes::prefix(size_t count) const {
    FileNotes part = *this;
    part.held.clear(), part.updates.clear();  // a call that ends says so
    std::erase_if(part.computed_outside, [&](const auto& each) { return each.first >= count; });
    std::erase_if(part.constant_selections, [&](const OutsideOp& op) {
        return std::ranges::any_of(op.results, [&](RecordId id) { return id >= count; });
    });
    std::erase_if(part.value_reads, [&](const ValueRead& read) { return read.value >= count; });
    std::erase_if(part.extent_reads,
                  [&](const ExtentRead& read) { return read.of.value >= count; });
    return part;
}

}  // namespace megjit::jit
