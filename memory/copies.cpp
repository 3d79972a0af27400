#include "memory/copies.h"

#include <stdexcept>
#include <string>

namespace megjit::memory {

Copies::Copies(const RecomputeSchedule& schedule, const std::vector<uint32_t>& order)
    : schedule(schedule),
      current(schedule.problem.values.size(), kNone),
      first_copy(order.size() + 1),
      first_read(order.size() + 1) {
    all.reserve(2 * order.size());
    reads.reserve(4 * order.size());
    for (uint32_t p = 0; p < order.size(); ++p) {
        first_copy[p] = static_cast<uint32_t>(all.size());
        first_read[p] = static_cast<uint32_t>(reads.size());
        for (uint32_t v : schedule.reads[order[p]]) {
            if (schedule.producer[v] == kNone) continue;
            if (current[v] == kNone)
                throw std::invalid_argument("rematerialize: value " + std::to_string(v) +
                                            " is read before it is written");
            all[current[v]].last = p;
            reads.push_back(current[v]);
        }
        for (uint32_t v : schedule.writes[order[p]]) {
            // A kept value stays where it was written first; a second copy lives only for a moment.
            if (current[v] == kNone || !schedule.problem.values[v].is_kept)
                current[v] = static_cast<uint32_t>(all.size());
            all.push_back({v, p, p});
        }
    }
    first_copy[order.size()] = static_cast<uint32_t>(all.size());
    first_read[order.size()] = static_cast<uint32_t>(reads.size());
}

}  // namespace megjit::memory
