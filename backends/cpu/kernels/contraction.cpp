#include "backends/cpu/kernels/contraction.h"

#include <cstring>
#include <type_traits>

#define MEGJIT_KERNELS "backends/cpu/kernels/contraction.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {

template <class T>
void ContractionTile<T>::multiply_block(const T* from, const LeftRows<T>& left, int64_t count) {
    constexpr int64_t kWidest = 64 / sizeof(T);  // lanes of a vector
    const int64_t whole = (columns + kWidest - 1) / kWidest * kWidest;
    for (int64_t t = 0; t < count; ++t)
        std::fill(block.begin() + t * kColumns + columns, block.begin() + t * kColumns + whole,
                  T{0});
    MEGJIT_BEST(multiply_block<T>)({from, left.row_step, left.term_step}, block.data(), kColumns,
                                   sums.data(), rows, whole, count, has_sums_);
    has_sums_ = true;
}

template <class T>
void ContractionTile<T>::store(T* to, int64_t step) const {
    for (int64_t r = 0; r < rows; ++r)
        std::memcpy(to + (row + r) * step + column, sums.data() + r * kColumns,
                    static_cast<size_t>(columns) * sizeof(T));
}

template struct ContractionTile<float>;
template struct ContractionTile<double>;

}  // namespace megjit::cpu
