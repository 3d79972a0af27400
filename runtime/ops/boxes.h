// runtime/ops/boxes.h -- boxes in an image, and by how much two of them overlap.
#pragma once

#include <algorithm>

namespace megjit::runtime {

struct Box {
    float x0 = 0, y0 = 0, x1 = 0, y1 = 0;
    float area() const { return (x1 - x0) * (y1 - y0); }
};

inline float overlap(const Box& a, const Box& b) {  // intersection over union
    const float w = std::max(0.0f, std::min(a.x1, b.x1) - std::max(a.x0, b.x0)),
                h = std::max(0.0f, std::min(a.y1, b.y1) - std::max(a.y0, b.y0));
    const float both = w * h, either = a.area() + b.area() - both;
    return either > 0 ? both / either : 0;
}

}  // namespace megjit::runtime
