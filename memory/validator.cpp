#include "memory/validator.h"

#include <algorithm>

namespace megjit::memory {
namespace {

std::string name(std::span<const Buffer> buffers, size_t i, const Plan& plan) {
    const Buffer& b = buffers[i];
    return "buffer " + std::to_string(b.id) + " (steps [" + std::to_string(b.live.first) + ", " +
           std::to_string(b.live.last) + "), bytes [" + std::to_string(plan.offsets[i]) + ", " +
           std::to_string(plan.offsets[i] + b.bytes) + "))";
}

}  // namespace

std::string fault_of(std::span<const Buffer> buffers, const Plan& plan) {
    if (plan.offsets.size() != buffers.size())
        return "the plan has " + std::to_string(plan.offsets.size()) + " offsets for " +
               std::to_string(buffers.size()) + " buffers";
    for (size_t i = 0; i < buffers.size(); ++i) {
        const Buffer& a = buffers[i];
        const size_t begin = plan.offsets[i];
        const size_t end = begin + a.bytes;
        if (end < begin) return name(buffers, i, plan) + " has more bytes than there are";
        if (a.live.first >= a.live.last || a.bytes == 0) continue;  // it needs no memory
        if (begin % a.align != 0)
            return name(buffers, i, plan) + " is not aligned to " + std::to_string(a.align);
        if (end > plan.arena_bytes)
            return name(buffers, i, plan) + " ends outside the arena of " +
                   std::to_string(plan.arena_bytes) + " bytes";
        for (size_t j = 0; j < i; ++j) {
            const Buffer& b = buffers[j];
            if (b.live.first >= b.live.last || b.bytes == 0) continue;
            const bool same_time =
                std::max(a.live.first, b.live.first) < std::min(a.live.last, b.live.last);
            const bool same_bytes =
                std::max(begin, plan.offsets[j]) < std::min(end, plan.offsets[j] + b.bytes);
            if (same_time && same_bytes)
                return name(buffers, j, plan) + " and " + name(buffers, i, plan) +
                       " are live in the same step on the same bytes";
        }
    }
    return "";
}

}  // namespace megjit::memory
