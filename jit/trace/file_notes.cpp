#include "jit/trace/file_notes.h"

#include <algorithm>

namespace megjit::jit {
namespace {

template <class Map>
const typename Map::mapped_type& in_or_empty(const Map& notes, typename Map::key_type key) {
    static const typename Map::mapped_type kNone;
    const auto found = notes.find(key);
    return found == notes.end() ? kNone : found->second;
}

}  // namespace

FileNotes FileNotes::prefix(const Record& record) const {
    FileNotes part = *this;
    const auto is_new = [&](RecordId id) { return at(id) >= record.values.size(); };
    std::erase_if(part.calls,
                  [&](const auto& each) { return at(each.first) >= record.graph.nodes().size(); });
    std::erase_if(part.of_extents, [&](const auto& each) { return is_new(each.first); });
    part.results.clear(), part.held.clear(), part.updates.clear();  // the end of a call notes these
    std::erase_if(part.computed_outside, [&](const auto& each) { return is_new(each.first); });
    std::erase_if(part.constant_selections,
                  [&](const OutsideOp& op) { return std::ranges::any_of(op.results, is_new); });
    std::erase_if(part.value_reads, [&](const ValueRead& read) { return is_new(read.value); });
    std::erase_if(part.extent_reads, [&](const ExtentRead& read) { return is_new(read.of.value); });
    return part;
}

const CallNotes& FileNotes::call(NodeId node) const { return in_or_empty(calls, node); }

const OfExtents& FileNotes::of_extents_of(RecordId value) const {
    return in_or_empty(of_extents, value);
}

}  // namespace megjit::jit
