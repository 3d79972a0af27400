// runtime/ops/dropout.h -- which words of a random generator drop an element. One rule for the op
// dropout_mask and for attention, which must drop the same elements, on all devices.
#pragma once

#include <algorithm>
#include <cstdint>

namespace megjit::runtime {

struct Dropout {
    explicit Dropout(double drop_prob)
        : kept(static_cast<float>(1 / (1 - drop_prob))),
          below(static_cast<uint32_t>(std::min(drop_prob * 0x1p32, 0x1p32 - 1))) {}
    float kept;  // factor of an element that stays
    uint32_t below;  // words below it drop
};

}  // namespace megjit::runtime
