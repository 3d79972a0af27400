#include "memory/inplace.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "memory/parts.h"

namespace megjit::memory {
namespace {

bool is_written(const Value& v) {
    return v.kind == ValueKind::kTemp || v.kind == ValueKind::kOutput || v.kind == ValueKind::kHost;
}

bool contains(const std::vector<uint32_t>& ids, uint32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void require(bool holds, const char* rule, uint32_t step, uint32_t value) {
    if (!holds)
        throw std::invalid_argument("share_buffers: step " + std::to_string(step) + ", value " +
                                    std::to_string(value) + ": " + rule);
}

void check(const Schedule& schedule) {
    const auto& values = schedule.values;
    std::vector<bool> written(values.size(), false);
    for (uint32_t s = 0; s < schedule.steps.size(); ++s) {
        const StepAccess& step = schedule.steps[s];
        for (const uint32_t r : step.reads) {
            require(r < values.size(), "there is no such value to read", s, r);
            require(!is_written(values[r]) || written[r], "it is read before it is written", s, r);
        }
        for (const uint32_t w : step.writes) {
            require(w < values.size(), "there is no such value to write", s, w);
            require(is_written(values[w]), "inputs and constants cannot be written", s, w);
            require(!written[w], "it is written a second time", s, w);
            written[w] = true;
        }
        for (const Alias& a : step.aliases) {
            require(contains(step.writes, a.output), "alias of what is not written", s, a.output);
            require(contains(step.reads, a.input), "alias with what is not read", s, a.input);
            if (a.kind == AliasKind::kInPlace) continue;
            const auto is_on_host = [&](uint32_t v) { return values[v].kind == ValueKind::kHost; };
            require(is_on_host(a.output) == is_on_host(a.input),
                    "a view on the other side of device and host", s, a.output);
            const bool is_part = a.kind == AliasKind::kPart;
            const size_t whole = values[is_part ? a.output : a.input].bytes;
            const size_t part = values[is_part ? a.input : a.output].bytes;
            require(a.offset <= whole && part <= whole - a.offset, "a view or a part does not fit",
                    s, a.output);
        }
    }
    for (uint32_t v = 0; v < values.size(); ++v)
        require(!is_written(values[v]) || written[v], "no step writes it",
                static_cast<uint32_t>(schedule.steps.size()), v);
}

// Values from which a chain of in-place steps can lead to an output: for these, the storage of a
// donated input is worth more than a place in the arena.
std::vector<bool> on_the_way_to_an_output(const Schedule& schedule) {
    const auto& values = schedule.values;
    std::vector<bool> leads(values.size());
    for (size_t v = 0; v < values.size(); ++v) leads[v] = values[v].kind == ValueKind::kOutput;
    for (size_t s = schedule.steps.size(); s-- > 0;)
        for (const Alias& a : schedule.steps[s].aliases)
            if ((a.kind == AliasKind::kInPlace || a.kind == AliasKind::kView) && leads[a.output] &&
                values[a.output].bytes == values[a.input].bytes)
                leads[a.input] = true;
    return leads;
}

class Sharing {
public:
    explicit Sharing(const Schedule& schedule)
        : schedule_(schedule),
          live_(lifetimes_of(schedule)),
          leads_to_output_(on_the_way_to_an_output(schedule)) {
        result_.buffer_of.assign(schedule.values.size(), kNone);
        result_.offset_of.assign(schedule.values.size(), 0);
    }

    Aliasing run() {
        for (uint32_t v = 0; v < schedule_.values.size(); ++v)
            if (!is_written(schedule_.values[v])) add_buffer(v);
        for (uint32_t s = 0; s < schedule_.steps.size(); ++s) place_writes(s);
        for (size_t b = 0; b < result_.buffers.size(); ++b)
            result_.buffers[b].live = lifetime_of_buffer(b);
        share_parts(schedule_, live_, result_);
        return std::move(result_);
    }

private:
    // Places views first: they decide whether a buffer's bytes are still needed. Then come values
    // that should have the first choice, then the rest.
    void place_writes(uint32_t s) {
        const StepAccess& step = schedule_.steps[s];
        for (const Alias& a : step.aliases)
            if (a.kind == AliasKind::kView && result_.buffer_of[a.output] == kNone)
                place_view(s, a);
        for (const bool leads : {true, false})
            for (const uint32_t w : step.writes)
                if (leads_to_output_[w] == leads && result_.buffer_of[w] == kNone)
                    place_result(s, w);
    }

    void place_view(uint32_t s, const Alias& a) {
        const Value& value = schedule_.values[a.output];
        const uint32_t b = result_.buffer_of[a.input];
        const size_t offset = result_.offset_of[a.input] + a.offset;
        if (value.kind == ValueKind::kOutput && !can_become_output(b, offset, value.bytes)) {
            result_.copies_needed.push_back(
                {.step = s, .to = a.output, .from = a.input, .offset = a.offset});
            add_buffer(a.output);
        } else {
            join(a.output, b, offset);
        }
    }

    // The caller gets an output in storage of its own, exactly as large as the output.
    bool can_become_output(uint32_t b, size_t offset, size_t bytes) const {
        const SharedBuffer& buffer = result_.buffers[b];
        return buffer.output == kNone && offset == 0 && bytes == buffer.bytes && may_write(buffer);
    }

    bool may_write(const SharedBuffer& buffer) const {
        if (buffer.place == Place::kInput) return schedule_.values[buffer.value].donatable;
        return buffer.place != Place::kConstant;
    }

    void place_result(uint32_t s, uint32_t w) {
        uint32_t chosen = kNone;
        for (const Alias& a : schedule_.steps[s].aliases) {
            if (a.output != w || a.kind != AliasKind::kInPlace || !can_overwrite(s, w, a.input))
                continue;
            const uint32_t b = result_.buffer_of[a.input];
            const bool in_donated_input = result_.buffers[b].place == Place::kInput;
            if (chosen == kNone || in_donated_input == leads_to_output_[w]) chosen = b;
            if (in_donated_input == leads_to_output_[w]) break;
        }
        if (chosen == kNone) {
            add_buffer(w);
        } else {
            join(w, chosen, 0);
            result_.buffers[chosen].overwritten = true;
        }
    }

    // `w` may lie over the buffer of `operand` if it fills it exactly (a smaller value would keep a
    // larger buffer alive) and nothing in that buffer is needed during or after this step.
    bool can_overwrite(uint32_t s, uint32_t w, uint32_t operand) const {
        if (is_on_host(w) != is_on_host(operand)) return false;
        const uint32_t b = result_.buffer_of[operand];
        const SharedBuffer& buffer = result_.buffers[b];
        const size_t bytes = schedule_.values[w].bytes;
        if (!may_write(buffer) || buffer.bytes != bytes || schedule_.values[operand].bytes != bytes)
            return false;
        return std::all_of(members_[b].begin(), members_[b].end(), [&](uint32_t m) {
            if (live_[m].last <= s) return true;
            return live_[m].last == s + 1 && is_partner(s, w, m);
        });
    }

    bool is_on_host(uint32_t v) const { return schedule_.values[v].kind == ValueKind::kHost; }

    // An alias pairs equal positions: it says nothing about a slice of the operand.
    bool is_partner(uint32_t s, uint32_t w, uint32_t operand) const {
        if (result_.offset_of[operand] != 0) return false;
        if (schedule_.values[operand].bytes != schedule_.values[w].bytes) return false;
        const auto& aliases = schedule_.steps[s].aliases;
        return std::any_of(aliases.begin(), aliases.end(), [&](const Alias& a) {
            return a.kind == AliasKind::kInPlace && a.output == w && a.input == operand;
        });
    }

    void add_buffer(uint32_t v) {
        const Value& value = schedule_.values[v];
        SharedBuffer buffer = {.bytes = value.bytes, .align = value.align};
        if (value.kind == ValueKind::kInput) buffer.place = Place::kInput;
        if (value.kind == ValueKind::kConstant) buffer.place = Place::kConstant;
        if (value.kind == ValueKind::kHost) buffer.place = Place::kHost;
        if (!is_written(value)) buffer.value = v;
        result_.buffers.push_back(buffer);
        members_.emplace_back();
        join(v, static_cast<uint32_t>(members_.size() - 1), 0);
    }

    void join(uint32_t v, uint32_t b, size_t offset) {
        members_[b].push_back(v);
        result_.buffer_of[v] = b;
        result_.offset_of[v] = offset;
        if (schedule_.values[v].kind != ValueKind::kOutput) return;
        SharedBuffer& buffer = result_.buffers[b];
        buffer.output = v;
        if (buffer.place != Place::kArena) return;
        buffer.place = Place::kOutput;
        buffer.value = v;
    }

    Lifetime lifetime_of_buffer(size_t b) const {
        const Place place = result_.buffers[b].place;
        if (place != Place::kArena && place != Place::kHost)
            return {0, static_cast<uint32_t>(schedule_.steps.size())};
        Lifetime all = live_[members_[b].front()];
        for (const uint32_t m : members_[b])
            all = {std::min(all.first, live_[m].first), std::max(all.last, live_[m].last)};
        return all;
    }

    const Schedule& schedule_;
    std::vector<Lifetime> live_;
    std::vector<bool> leads_to_output_;
    std::vector<std::vector<uint32_t>> members_;  // value ids, by buffer
    Aliasing result_;
};

}  // namespace

std::vector<Lifetime> lifetimes_of(const Schedule& schedule) {
    const auto after_all = static_cast<uint32_t>(schedule.steps.size()) + 1;
    std::vector<Lifetime> live(schedule.values.size());
    for (uint32_t s = 0; s < schedule.steps.size(); ++s) {
        for (const uint32_t w : schedule.steps[s].writes) live[w] = {s, s + 1};
        for (const uint32_t r : schedule.steps[s].reads) live[r].last = s + 1;
    }
    for (size_t v = 0; v < live.size(); ++v) {
        const Value& value = schedule.values[v];
        const bool may_die = value.kind == ValueKind::kTemp || value.kind == ValueKind::kHost ||
                             (value.kind == ValueKind::kInput && value.donatable);
        if (!may_die) live[v].last = after_all;
    }
    return live;
}

Aliasing share_buffers(const Schedule& schedule) {
    check(schedule);
    return Sharing(schedule).run();
}

std::vector<Buffer> arena_buffers(const Aliasing& aliasing, Place arena) {
    std::vector<Buffer> buffers;
    for (uint32_t b = 0; b < aliasing.buffers.size(); ++b) {
        const SharedBuffer& shared = aliasing.buffers[b];
        if (shared.place == arena)
            buffers.push_back(
                {.id = b, .live = shared.live, .bytes = shared.bytes, .align = shared.align});
    }
    return buffers;
}

MemorySummary summarize(const Schedule& schedule, const Aliasing& aliasing, size_t arena_bytes) {
    MemorySummary sum = {.arena_bytes = arena_bytes};
    for (const Value& v : schedule.values) sum.unplanned_bytes += v.bytes;
    for (const SharedBuffer& b : aliasing.buffers)
        if (b.place != Place::kArena && b.place != Place::kHost) sum.planned_bytes += b.bytes;
    sum.peak_live_bytes = sum.planned_bytes + peak_live_bytes(arena_buffers(aliasing));
    sum.planned_bytes += arena_bytes;
    return sum;
}

}  // namespace megjit::memory
