// backends/cpu/contractions/contraction.inl -- see contraction.h. Included by each_isa.h.

#include "backends/cpu/kernels/small_product.inl"

void multiply_block(const LeftFactor& left, const float* block, int64_t block_step, float* sums,
                    int64_t rows, int64_t columns, int64_t terms, bool adds) {
    multiply(left, block, block_step, sums, block_step, rows, columns, terms, adds);
}
