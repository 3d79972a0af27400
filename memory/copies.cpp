#include "memory/copies.h"

#include <stdexcept>
#include <string>

namespace megjit::memory {

Copies::Copies(const RecomputeSchedule& schedule, const std::vector<uint32_t>& order)
    : schedule(schedule),
      current(schedule.problem.values.size(), kNone),
      first_copy(order.size() + 1),
      first_read(order.size() + 1) {
    size_t most_copies = 0, most_reads = 0;
    for (const uint32_t step : order) {
        most_copies += schedule.writes[step].size();
        most_reads += schedule.reads[step].size();
    }
    all.resize(most_copies);
    reads.resize(most_reads);
    uint32_t copies = 0, read = 0;
    for (uint32_t p = 0; p < order.size(); ++p) {
        first_copy[p] = copies;
        first_read[p] = read;
        for (uint32_t v : schedule.reads[order[p]]) {
            if (schedule.producer[v] == kNone) continue;
            if (current[v] == kNone)
                throw std::invalid_argument("rematerialize: value " + std::to_string(v) +
                                            " is read before it is written");
            all[current[v]].last = p;
            reads[read++] = current[v];
        }
        for (uint32_t v : schedule.writes[order[p]]) {
            // A kept value stays where it was written first; a second copy lives only for a moment.
            if (current[v] == kNone || !schedule.problem.values[v].is_kept) current[v] = copies;
            all[copies++] = {v, p, p};
        }
    }
    first_copy[order.size()] = copies;
    first_read[order.size()] = read;
    reads.resize(read);
}

}  // namespace megjit::memory
