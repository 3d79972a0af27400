// jit/trace/first_places.h -- FirstPlaces: which things of a list came before, in one pass over it.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace megjit::jit {

class FirstPlaces {
public:
    // For at most `count` keys.
    explicit FirstPlaces(size_t count) {
        if (count <= few_.size()) return;
        keys_.reserve(count);
        shift_ = 64 - std::bit_width(2 * count);
        table_.assign(size_t{1} << (64 - shift_), 0);
    }

    // Adds a key and returns the place, from 0 on, at which it was added first.
    uint32_t add(uint64_t key) {
        if (table_.empty()) {
            few_[count_] = key;
            uint32_t first = 0;
            while (few_[first] != key) ++first;
            ++count_;
            return first;
        }
        keys_.push_back(key);
        uint32_t& place = table_[slot_of(key)];
        if (place == 0) place = static_cast<uint32_t>(keys_.size());
        return place - 1;
    }

    bool has(uint64_t key) const {
        if (!table_.empty()) return table_[slot_of(key)] != 0;
        for (uint32_t i = 0; i < count_; ++i)
            if (few_[i] == key) return true;
        return false;
    }

private:
    size_t slot_of(uint64_t key) const {
        size_t slot = key * 0x9e3779b97f4a7c15 >> shift_;
        while (table_[slot] != 0 && keys_[table_[slot] - 1] != key)
            slot = (slot + 1) % table_.size();
        return slot;
    }

    std::array<uint64_t, 16> few_;  // compared with each other
    uint32_t count_ = 0;
    std::vector<uint64_t> keys_;
    int shift_ = 0;
    std::vector<uint32_t> table_;  // place + 1, by hash; 0: free
};

}  // namespace megjit::jit
