// runtime/core/random.h -- RandomState: where random ops get their keys. A random op is a pure
// function of its key, so that the same seed gives the same bits in eager, traced and recomputed
// runs.
#pragma once

#include <cstdint>

#include "runtime/core/tensor.h"

namespace megjit::runtime {

class RandomState {
public:
    explicit RandomState(uint64_t seed, uint64_t counter = 0) : seed_(seed), counter_(counter) {}
    void seed(uint64_t seed) {
        seed_ = seed;
        counter_ = 0;
    }
    uint64_t current_seed() const { return seed_; }
    uint64_t counter() const { return counter_; }
    // int32[4]: seed low, high, counter low, high; then the counter goes up.
    // Null device: the host.
    TensorRef key(Device* device = nullptr);
    // Returns the next `count` keys as int32[count, 4], one for each trip of a loop.
    TensorRef keys(int64_t count, Device* device = nullptr);
    // Gives back the last `count` keys, which were not used: they come next again.
    void take_back(uint64_t count) { counter_ -= count; }

private:
    TensorRef make(const Shape& shape, int64_t count, Device* device);

    uint64_t seed_ = 0;
    uint64_t counter_ = 0;
};

RandomState& default_random_state();  // the one of the process

// The generator that made this key, or null: a program that runs without its Python body draws the
// next key from that generator.
RandomState* state_of(const Tensor& key);

// The generator returns to its state before it made this key, which nothing has used. Does nothing
// for other tensors.
void take_back_key(const Tensor& key);

}  // namespace megjit::runtime
