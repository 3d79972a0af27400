#include "memory/aliasing_validator.h"

#include <algorithm>
#include <limits>

namespace megjit::memory {
namespace {

// Where a byte comes from: it is byte `offset` of what the step that wrote `value` computed.
struct Origin {
    uint32_t value = kNone;
    size_t offset = 0;
    bool operator==(const Origin&) const = default;
};

// The origins of a range of bytes, in pieces that do not overlap.
class Bytes {
public:
    Bytes() = default;
    Bytes(uint32_t value, size_t bytes) : pieces_{{0, bytes, {value, 0}}} {}

    void write(size_t begin, size_t end, const Bytes& content) {
        std::vector<Segment> kept = cut(0, begin);
        for (const Segment& p : content.cut(0, end - begin))
            kept.push_back({p.begin + begin, p.end + begin, p.origin});
        for (const Segment& p : cut(end, std::numeric_limits<size_t>::max())) kept.push_back(p);
        pieces_ = std::move(kept);
    }

    bool hold(size_t begin, size_t end, const Bytes& content) const {
        size_t found = 0;
        for (const Segment& have : cut(begin, end))
            for (const Segment& want : content.cut(have.begin - begin, have.end - begin)) {
                if (have.at(want.begin + begin) != want.origin) return false;
                found += want.end - want.begin;
            }
        return found == end - begin;
    }

    Bytes part(size_t begin, size_t end) const {
        Bytes result;
        for (const Segment& p : cut(begin, end))
            result.pieces_.push_back({p.begin - begin, p.end - begin, p.origin});
        return result;
    }

private:
    struct Segment {
        size_t begin = 0;
        size_t end = 0;
        Origin origin;
        Origin at(size_t x) const { return {origin.value, origin.offset + (x - begin)}; }
    };

    std::vector<Segment> cut(size_t begin, size_t end) const {
        std::vector<Segment> result;
        for (const Segment& p : pieces_) {
            const size_t from = std::max(p.begin, begin), to = std::min(p.end, end);
            if (from < to) result.push_back({from, to, p.at(from)});
        }
        return result;
    }

    std::vector<Segment> pieces_;
};

class Replay {
public:
    Replay(const Schedule& schedule, const Aliasing& aliasing)
        : schedule_(schedule), aliasing_(aliasing), memory_(aliasing.buffers.size()) {
        for (uint32_t v = 0; v < schedule.values.size(); ++v)
            content_.emplace_back(v, schedule.values[v].bytes);
    }

    std::string fault() {
        if (fault_in_places()) return fault_;
        for (uint32_t v = 0; v < schedule_.values.size(); ++v)
            if (is_there_before(v)) write(v);
        for (step_ = 0; step_ < schedule_.steps.size(); ++step_)
            if (fault_in_step(schedule_.steps[step_])) return fault_;
        for (uint32_t v = 0; v < schedule_.values.size(); ++v)
            if (schedule_.values[v].kind == ValueKind::kOutput && !is_whole(v))
                return "output " + std::to_string(v) + " is not whole at the end";
        return "";
    }

private:
    bool fails(uint32_t v, const std::string& why) {
        fault_ = "value " + std::to_string(v) + " " + why;
        return true;
    }
    bool fails_in_step(uint32_t v, const std::string& why) {
        fault_ = "step " + std::to_string(step_) + ": value " + std::to_string(v) + " " + why;
        return true;
    }

    ValueKind kind(uint32_t v) const { return schedule_.values[v].kind; }
    bool is_there_before(uint32_t v) const {
        return kind(v) == ValueKind::kInput || kind(v) == ValueKind::kConstant;
    }
    const SharedBuffer& buffer(uint32_t v) const {
        return aliasing_.buffers[aliasing_.buffer_of[v]];
    }
    size_t begin(uint32_t v) const { return aliasing_.offset_of[v]; }
    size_t end(uint32_t v) const { return begin(v) + schedule_.values[v].bytes; }

    void write(uint32_t v) { memory_[aliasing_.buffer_of[v]].write(begin(v), end(v), content_[v]); }
    bool is_whole(uint32_t v) const {
        return memory_[aliasing_.buffer_of[v]].hold(begin(v), end(v), content_[v]);
    }
    bool overlap(uint32_t v, uint32_t w) const {
        return aliasing_.buffer_of[v] == aliasing_.buffer_of[w] &&
               std::max(begin(v), begin(w)) < std::min(end(v), end(w));
    }

    bool fault_in_places() {
        const size_t n = schedule_.values.size();
        if (aliasing_.buffer_of.size() != n || aliasing_.offset_of.size() != n) {
            fault_ = "not every value has a buffer";
            return true;
        }
        for (uint32_t v = 0; v < n; ++v) {
            if (aliasing_.buffer_of[v] >= aliasing_.buffers.size())
                return fails(v, "has a buffer that does not exist");
            const SharedBuffer& b = buffer(v);
            if (end(v) > b.bytes) return fails(v, "is larger than its buffer");
            const bool in_own_storage =
                b.value == v && begin(v) == 0 && schedule_.values[v].bytes == b.bytes;
            if (kind(v) == ValueKind::kInput && !(b.place == Place::kInput && in_own_storage))
                return fails(v, "is an input outside its storage");
            if (kind(v) == ValueKind::kConstant && !(b.place == Place::kConstant && in_own_storage))
                return fails(v, "is a constant outside its storage");
            if ((kind(v) == ValueKind::kHost) != (b.place == Place::kHost))
                return fails(v, "is on the wrong side of device and host");
            if (kind(v) == ValueKind::kOutput && !is_output_in_place(v))
                return fails(v, "is an output without a storage of its own");
        }
        return false;
    }

    bool is_output_in_place(uint32_t v) const {
        const SharedBuffer& b = buffer(v);
        const bool fills_it = begin(v) == 0 && schedule_.values[v].bytes == b.bytes;
        const bool own = b.place == Place::kOutput && b.value == v;
        const bool donated = b.place == Place::kInput && schedule_.values[b.value].donatable;
        return b.output == v && fills_it && (own || donated);
    }

    bool fault_in_step(const StepAccess& step) {
        for (const Copy& copy : aliasing_.copies_needed)
            if (copy.step == step_ && fault_in_copy(step, copy)) return true;
        for (const uint32_t r : step.reads) {
            if (is_too_early_or_late(r))
                return fails_in_step(r, "is read while its buffer is dead");
            if (!is_whole(r)) return fails_in_step(r, "is read, but its bytes were overwritten");
        }
        for (const uint32_t w : step.writes)
            if (fault_in_write(step, w)) return true;
        for (const uint32_t w : step.writes)
            if (!is_whole(w)) return fails_in_step(w, "was overwritten in the step that wrote it");
        return false;
    }

    bool is_too_early_or_late(uint32_t v) const {
        const Lifetime live = buffer(v).live;
        return step_ < live.first || step_ >= live.last;
    }

    bool fault_in_copy(const StepAccess& step, const Copy& copy) {
        const Alias* view = view_of(step, copy.to);
        if (view == nullptr || view->input != copy.from || view->offset != copy.offset)
            return fails_in_step(copy.to, "is copied, but is not such a view");
        if (!is_whole(copy.from)) return fails_in_step(copy.from, "is copied after its end");
        content_[copy.to] = viewed(*view);
        write(copy.to);
        return false;
    }

    const Alias* view_of(const StepAccess& step, uint32_t v) const {
        const auto a = std::find_if(step.aliases.begin(), step.aliases.end(), [&](const Alias& x) {
            return x.kind == AliasKind::kView && x.output == v;
        });
        return a == step.aliases.end() ? nullptr : &*a;
    }

    Bytes viewed(const Alias& a) const {
        return content_[a.input].part(a.offset, a.offset + schedule_.values[a.output].bytes);
    }

    // Bytes that a step moves keep their origin, whether they are copied or lie there already.
    void know_moved_bytes(const StepAccess& step, uint32_t w) {
        for (const Alias& a : step.aliases) {
            if (a.output != w) continue;
            if (a.kind == AliasKind::kSlice) content_[w] = viewed(a);
            if (a.kind == AliasKind::kPart)
                content_[w].write(a.offset, a.offset + schedule_.values[a.input].bytes,
                                  content_[a.input]);
        }
    }

    bool is_copied(uint32_t v) const {
        return std::any_of(aliasing_.copies_needed.begin(), aliasing_.copies_needed.end(),
                           [&](const Copy& c) { return c.step == step_ && c.to == v; });
    }

    bool fault_in_write(const StepAccess& step, uint32_t w) {
        if (is_too_early_or_late(w)) return fails_in_step(w, "is written while its buffer is dead");
        if (is_copied(w)) return false;
        if (const Alias* view = view_of(step, w)) {
            if (aliasing_.buffer_of[w] != aliasing_.buffer_of[view->input] ||
                begin(w) != begin(view->input) + view->offset)
                return fails_in_step(w, "is a view, but does not lie in what it views");
            content_[w] = viewed(*view);
            return false;
        }
        know_moved_bytes(step, w);
        if (is_slice_in_place(step, w)) return false;
        const SharedBuffer& b = buffer(w);
        if (b.place == Place::kConstant) return fails_in_step(w, "overwrites a constant");
        if (b.place == Place::kInput && !schedule_.values[b.value].donatable)
            return fails_in_step(w, "overwrites an input that is not donatable");
        for (const uint32_t r : step.reads)
            if (overlap(w, r) && !is_allowed(step, w, r))
                return fails_in_step(w, "overwrites value " + std::to_string(r) +
                                            ", which the step reads, without an alias");
        write(w);
        return false;
    }

    bool is_slice_in_place(const StepAccess& step, uint32_t w) const {
        return std::any_of(step.aliases.begin(), step.aliases.end(), [&](const Alias& a) {
            return a.kind == AliasKind::kSlice && a.output == w &&
                   aliasing_.buffer_of[w] == aliasing_.buffer_of[a.input] &&
                   begin(w) == begin(a.input) + a.offset;
        });
    }

    // Elements of `r` are read before they are overwritten; or `r` lies in an operand that keeps
    // its place.
    bool is_allowed(const StepAccess& step, uint32_t w, uint32_t r) const {
        return std::any_of(step.aliases.begin(), step.aliases.end(), [&](const Alias& a) {
            if (a.output != w) return false;
            if (a.kind == AliasKind::kInPlace) return a.input == r && begin(w) == begin(r);
            const bool stays = a.kind == AliasKind::kPart &&
                               begin(a.input) == begin(w) + a.offset &&
                               aliasing_.buffer_of[a.input] == aliasing_.buffer_of[w];
            return stays && begin(a.input) <= begin(r) && end(r) <= end(a.input);
        });
    }

    const Schedule& schedule_;
    const Aliasing& aliasing_;
    std::vector<Bytes> memory_;  // by buffer
    std::vector<Bytes> content_;  // by value: what its readers expect
    uint32_t step_ = 0;
    std::string fault_;
};

}  // namespace

std::string fault_of_aliasing(const Schedule& schedule, const Aliasing& aliasing) {
    return Replay(schedule, aliasing).fault();
}

}  // namespace megjit::memory
