#include "backends/cpu/contractions/contraction.h"

#include <cstring>

#define MEGJIT_KERNELS "backends/cpu/contractions/contraction.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {

void ContractionTile::multiply_block(const float* from, const LeftRows& left, int64_t count) {
    constexpr int64_t kWidest = 16;  // lanes of a vector
    const int64_t whole = (columns + kWidest - 1) / kWidest * kWidest;
    for (int64_t t = 0; t < count; ++t)
        std::fill(block.begin() + t * kColumns + columns, block.begin() + t * kColumns + whole,
                  0.0f);
    MEGJIT_BEST(multiply_block)({from, left.row_step, left.term_step}, block.data(), kColumns,
                                sums.data(), rows, whole, count, has_sums_);
    has_sums_ = true;
}

void ContractionTile::store(float* to, int64_t step) const {
    for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + (row + r) * step + column, sums.data() + r * kColumns,
                    static_cast<size_t>(columns) * sizeof(float));
}

}  // namespace megjit::cpu
