// memory/copies.h -- Copies: which run of its step each read in a list of steps takes.
#pragma once

#include "memory/recompute_schedule.h"

namespace megjit::memory {

// Each run of a step writes copies of its values; a read takes the last copy written before it.
struct Copies {
    struct Copy {
        uint32_t value = 0;
        uint32_t born = 0, last = 0;  // positions of its run and of its last reader
    };

    // Throws std::invalid_argument when a step reads what no step before has written.
    Copies(const RecomputeSchedule& schedule, const std::vector<uint32_t>& order);

    // If not, the value has storage of its own, and this copy lies there.
    bool takes_room(uint32_t copy) const {
        const uint32_t value = all[copy].value;
        return !schedule.problem.values[value].is_kept || current[value] != copy;
    }
    size_t room(uint32_t copy) const {
        return takes_room(copy) ? schedule.problem.values[all[copy].value].bytes : 0;
    }

    const RecomputeSchedule& schedule;
    std::vector<Copy> all;
    std::vector<uint32_t> current;  // by value: its last copy, or kNone
    std::vector<uint32_t> first_copy;  // by position, with one more at the end: index into `all`
    std::vector<uint32_t> first_read, reads;  // by position, and one more: into `reads`
};

}  // namespace megjit::memory
