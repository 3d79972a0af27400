#include "runtime/core/random.h"

#include <vector>

#include "runtime/core/device.h"

namespace megjit::runtime {
namespace {

// The keys made last, so that a recording can tell them from other tensors.
constexpr size_t kRemembered = 4096;
struct Remembered {
    uint64_t tensor = 0;
    RandomState* state = nullptr;
    uint64_t seed = 0, counter = 0;  // the state before the key was made
};
thread_local Remembered remembered[kRemembered];

}  // namespace

TensorRef RandomState::make(const Shape& shape, int64_t count, Device* device) {
    const uint64_t before = counter_;
    std::vector<uint64_t> words;
    for (int64_t i = 0; i < count; ++i) words.insert(words.end(), {seed_, counter_++});
    const TensorRef tensor = tensor_from_host(device ? *device : host_device(),
                                              {.dtype = DType::i32, .shape = shape}, words.data());
    remembered[tensor->id() % kRemembered] = {tensor->id(), this, seed_, before};
    return tensor;
}

TensorRef RandomState::key(Device* device) { return make({4}, 1, device); }
TensorRef RandomState::keys(int64_t count, Device* device) {
    return make({count, 4}, count, device);
}

RandomState& default_random_state() {
    static RandomState state{0};
    return state;
}

RandomState* state_of(const Tensor& key) {
    const Remembered& found = remembered[key.id() % kRemembered];
    return found.tensor == key.id() ? found.state : nullptr;
}

void take_back_key(const Tensor& key) {
    RandomState* state = state_of(key);
    if (!state) return;
    const Remembered& found = remembered[key.id() % kRemembered];
    *state = RandomState(found.seed, found.counter);
}

}  // namespace megjit::runtime
