#include "memory/parts.h"

#include <algorithm>

namespace megjit::memory {
namespace {

class PartSharing {
public:
    PartSharing(const Schedule& schedule, const std::vector<Lifetime>& live, Aliasing& aliasing)
        : schedule_(schedule),
          live_(live),
          aliasing_(aliasing),
          members_(aliasing.buffers.size()),
          is_written_(live.size()),
          bytes_at_(schedule.steps.size() + 1) {
        for (uint32_t v = 0; v < live.size(); ++v) members_[aliasing.buffer_of[v]].push_back(v);
        for (const StepAccess& step : schedule.steps) {
            for (const uint32_t w : step.writes) is_written_[w] = true;
            for (const Alias& a : step.aliases)
                if (a.kind == AliasKind::kView &&
                    aliasing.buffer_of[a.output] == aliasing.buffer_of[a.input])
                    is_written_[a.output] = false;
        }
        for (const SharedBuffer& buffer : aliasing.buffers) add(buffer);
        peak_ = *std::max_element(bytes_at_.begin(), bytes_at_.end());
    }

    void run() {
        for (uint32_t s = 0; s < schedule_.steps.size(); ++s)
            for (const Alias& a : schedule_.steps[s].aliases) {
                if (a.kind == AliasKind::kPart)
                    try_to_share({.part = a.input, .whole = a.output, .written = a.output},
                                 a.offset);
                if (a.kind == AliasKind::kSlice)
                    try_to_share({.part = a.output, .whole = a.input, .written = a.output},
                                 a.offset);
            }
        drop_empty_buffers();
    }

private:
    // A step gives `part` and a piece of `whole` the same bytes, by writing one of them.
    struct Pair {
        uint32_t part, whole, written;
    };

    void try_to_share(const Pair& pair, size_t offset) {
        const uint32_t from = aliasing_.buffer_of[pair.part], to = aliasing_.buffer_of[pair.whole];
        const SharedBuffer& moved = aliasing_.buffers[from];
        offset += aliasing_.offset_of[pair.whole];
        if (from == to || moved.place != Place::kArena ||
            moved.bytes != schedule_.values[pair.part].bytes)
            return;
        if (!is_sound(pair, from, to, offset) || !lengthen(aliasing_.buffers[to], moved)) return;
        if (pair.written == pair.part) is_written_[pair.part] = false;
        for (const uint32_t v : members_[from]) {
            if (is_written_[v]) aliasing_.buffers[to].overwritten = true;
            aliasing_.buffer_of[v] = to;
            aliasing_.offset_of[v] += offset;
            members_[to].push_back(v);
        }
        members_[from].clear();
    }

    // Nothing may be written to bytes of the other buffer that are still needed, except for the
    // bytes that both share.
    bool is_sound(const Pair& pair, uint32_t from, uint32_t to, size_t offset) const {
        const auto spoils = [&](uint32_t writer, uint32_t other) {
            const uint32_t step = live_[writer].first;
            return is_written_[writer] && writer != pair.written && live_[other].first <= step &&
                   step < live_[other].last;
        };
        const bool may_write = may_be_written(aliasing_.buffers[to]);
        for (const uint32_t v : members_[from]) {
            if (!may_write && is_written_[v] && v != pair.written) return false;
            const size_t begin = aliasing_.offset_of[v] + offset,
                         end = begin + schedule_.values[v].bytes;
            for (const uint32_t w : members_[to]) {
                const size_t other = aliasing_.offset_of[w];
                const bool overlap =
                    std::max(begin, other) < std::min(end, other + schedule_.values[w].bytes);
                if (overlap && (spoils(v, w) || spoils(w, v))) return false;
            }
        }
        return true;
    }

    bool may_be_written(const SharedBuffer& buffer) const {
        if (buffer.place == Place::kInput) return schedule_.values[buffer.value].donatable;
        return buffer.place != Place::kConstant;
    }

    // `host` now lives as long as `moved` did, too; returns false, and changes nothing, if that
    // makes the peak larger.
    bool lengthen(SharedBuffer& host, const SharedBuffer& moved) {
        const SharedBuffer before = host;
        if (host.place == Place::kArena)
            host.live = {std::min(host.live.first, moved.live.first),
                         std::max(host.live.last, moved.live.last)};
        remove(before);
        remove(moved);
        add(host);
        const size_t peak = *std::max_element(bytes_at_.begin(), bytes_at_.end());
        if (peak <= peak_) {
            peak_ = peak;
            return true;
        }
        remove(host);
        host = before;
        add(before);
        add(moved);
        return false;
    }

    void add(const SharedBuffer& buffer) {
        if (buffer.place == Place::kArena)
            for (uint32_t step = buffer.live.first; step < buffer.live.last; ++step)
                bytes_at_[step] += buffer.bytes;
    }
    void remove(const SharedBuffer& buffer) {
        if (buffer.place == Place::kArena)
            for (uint32_t step = buffer.live.first; step < buffer.live.last; ++step)
                bytes_at_[step] -= buffer.bytes;
    }

    void drop_empty_buffers() {
        std::vector<uint32_t> now(members_.size());
        size_t kept = 0;
        for (size_t b = 0; b < members_.size(); ++b) {
            now[b] = static_cast<uint32_t>(kept);
            if (!members_[b].empty()) aliasing_.buffers[kept++] = aliasing_.buffers[b];
        }
        aliasing_.buffers.resize(kept);
        for (uint32_t& b : aliasing_.buffer_of) b = now[b];
    }

    const Schedule& schedule_;
    const std::vector<Lifetime>& live_;
    Aliasing& aliasing_;
    std::vector<std::vector<uint32_t>> members_;  // value ids, by buffer
    std::vector<bool> is_written_;  // by value: does its step write bytes? (What exists before the
                                    // first step is not written.)
    std::vector<size_t> bytes_at_;  // bytes of the arena, by step
    size_t peak_ = 0;
};

}  // namespace

void share_parts(const Schedule& schedule, const std::vector<Lifetime>& live, Aliasing& aliasing) {
    PartSharing(schedule, live, aliasing).run();
}

}  // namespace megjit::memory
