#include "jit/trace/kept_versions.h"

#include <algorithm>

#include "jit/trace/trace_function.h"

namespace megjit::jit {

namespace {

constexpr size_t kMostLeft = 1 << 16;  // hashes of dropped versions, 2 MB

}  // namespace

const KeptVersions::SameHash& KeptVersions::of_hash(size_t hash) const {
    static const SameHash kNone;
    const auto same = by_hash_.find(hash);
    return same == by_hash_.end() ? kNone : same->second;
}

VersionRef KeptVersions::find(const CallKey& key) const {
    for (const Order::iterator held : of_hash(key.hash))
        if (held->version->key == key) return held->version;
    return nullptr;
}

std::vector<VersionRef> KeptVersions::like(const CallKey& key) const {
    std::vector<VersionRef> found;
    for (const Order::iterator held : of_hash(key.hash))
        if (held->version->key == key) found.push_back(held->version);
    return found;
}

// Takes a version out; what goes with it goes when `left` does.
void KeptVersions::leave(Order::iterator held, std::vector<VersionRef>& left) {
    if (is_settled(*held->version)) settled_ = nullptr;
    const auto same = by_hash_.find(held->version->key.hash);
    std::erase(same->second, held);
    if (same->second.empty()) by_hash_.erase(same);
    Part& part = part_of(*held);
    part.bytes -= held->bytes;
    held->version->has_left = true;
    left.push_back(std::move(held->version));
    part.order.erase(held);
}

void KeptVersions::make_room(size_t most_bytes, std::vector<VersionRef>& left) {
    for (; size() && once_.bytes + again_.bytes > most_bytes; ++dropped_) {
        const bool is_once =
            again_.order.empty() ||
            (!once_.order.empty() && once_.order.back().used < again_.order.back().used);
        leave(std::prev((is_once ? once_ : again_).order.end()), left);
    }
    for (; once_.bytes > kOnceBytes && once_.order.size() >= kFewest; ++dropped_once_) {
        if (left_.size() == kMostLeft) left_.clear();
        left_.insert(once_.order.back().version->key.hash);
        leave(std::prev(once_.order.end()), left);
    }
}

void KeptVersions::add(VersionRef version, size_t most_bytes, std::vector<VersionRef>& left) {
    make_room(most_bytes, left);
    const size_t hash = version->key.hash;
    Held held{.version = std::move(version), .used = ++uses_, .came_back = left_.erase(hash) > 0};
    Order& order = part_of(held).order;
    order.push_front(std::move(held));
    SameHash& same = by_hash_[hash];
    same.insert(same.begin(), order.begin());
    settled_ = nullptr;
}

void KeptVersions::note_use(const VersionRef& version, size_t bytes) {
    const auto same = by_hash_.find(version->key.hash);
    if (same == by_hash_.end()) return;
    const auto found = std::ranges::find_if(
        same->second, [&](const auto& held) { return held->version == version; });
    if (found == same->second.end()) return;
    const Order::iterator held = *found;
    std::rotate(same->second.begin(), found, found + 1);
    Part& before = part_of(*held);
    before.bytes -= held->bytes;
    held->came_back = held->came_back || held->is_known;
    held->is_known = true;
    held->bytes = bytes;
    held->used = ++uses_;
    version->came_back = held->came_back;
    Part& now = part_of(*held);
    now.bytes += bytes;
    now.order.splice(now.order.begin(), before.order, held);
    settled_ = held->came_back ? version.get() : nullptr;
}

void KeptVersions::forget(const CallKey& key, std::vector<VersionRef>& left) {
    for (const Order::iterator held : SameHash(of_hash(key.hash)))
        if (held->version->key == key) leave(held, left);
}

void KeptVersions::clear(std::vector<VersionRef>& left) {
    left_.clear();
    for (Part* part : {&once_, &again_})
        while (!part->order.empty()) leave(part->order.begin(), left);
}

std::vector<VersionRef> KeptVersions::all() const {
    std::vector<const Held*> held;
    for (const Part* part : {&once_, &again_})
        for (const Held& each : part->order) held.push_back(&each);
    std::ranges::sort(held, std::greater(), &Held::used);
    std::vector<VersionRef> versions;
    versions.reserve(held.size());
    for (const Held* each : held) versions.push_back(each->version);
    return versions;
}

VersionRef KeptVersions::newest() const {
    const Held* newest = nullptr;
    for (const Part* part : {&once_, &again_})
        if (!part->order.empty() && (!newest || part->order.front().used > newest->used))
            newest = &part->order.front();
    return newest ? newest->version : nullptr;
}

}  // namespace megjit::jit
