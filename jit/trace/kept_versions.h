// jit/trace/kept_versions.h -- which versions a traced function keeps, and which go for want of
// room. Not safe for several threads by itself.
//
// A version that has been called again is kept as long as all versions together fit into the bytes
// that they may hold. Most sizes of a program that sees thousands of them never come back: versions
// that were called once share a few megabytes, so that they push out neither each other's memory
// nor the versions in use. The hash of a dropped one stays: if its call comes back, the version is
// recorded once more, and kept from then on.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace megjit::jit {

class Version;
struct CallKey;
using VersionRef = std::shared_ptr<Version>;

class KeptVersions {
public:
    // What was called once may hold so many bytes together, but so many versions stay in any case.
    static constexpr size_t kOnceBytes = size_t{3} << 20, kFewest = 16;

    VersionRef find(const CallKey& key) const;  // the one last used; null: there is none
    std::vector<VersionRef> like(const CallKey& key) const;  // those last used come first
    // Adds one after what must go for it, which `left` gets, to be destroyed without a lock.
    void add(VersionRef version, size_t most_bytes, std::vector<VersionRef>& left);
    void note_use(const VersionRef& version, size_t bytes);  // of it, now
    // Would noting a use of it change nothing but its bytes?
    bool is_settled(const Version& version) const { return settled_ == &version; }
    void forget(const CallKey& key, std::vector<VersionRef>& left);
    void clear(std::vector<VersionRef>& left);

    std::vector<VersionRef> all() const;  // newest use first
    VersionRef newest() const;  // null: there is none
    size_t size() const { return once_.order.size() + again_.order.size(); }
    uint64_t dropped() const { return dropped_; }  // for the bytes of all
    uint64_t dropped_once() const { return dropped_once_; }  // for those called once

private:
    struct Held {
        VersionRef version;
        size_t bytes = 0;  // of it, when it was used last
        uint64_t used = 0;  // number of the last use
        bool is_known = false;  // a call with it has ended
        bool came_back = false;
    };
    using Order = std::list<Held>;  // newest use first
    struct Part {
        Order order;
        size_t bytes = 0;
    };
    // Versions whose keys have one hash stand in the order of their use, the last used first.
    using SameHash = std::vector<Order::iterator>;

    Part& part_of(const Held& held) { return held.came_back ? again_ : once_; }
    const SameHash& of_hash(size_t hash) const;  // empty where there is none
    void make_room(size_t most_bytes, std::vector<VersionRef>& left);
    void leave(Order::iterator held, std::vector<VersionRef>& left);

    Part once_, again_;
    std::unordered_map<size_t, SameHash> by_hash_;  // of their keys
    std::unordered_set<size_t> left_;  // hashes of keys whose versions were called once
    uint64_t uses_ = 0, dropped_ = 0, dropped_once_ = 0;
    const Version* settled_ = nullptr;  // came back, and is the newest
};

}  // namespace megjit::jit
