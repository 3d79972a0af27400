// backends/cpu/contractions/contraction.inl -- see contraction.h. Included by each_isa.h.

#include "backends/cpu/kernels/small_product.inl"

void multiply_block(const LeftRows& left, const float* block, int64_t block_step, float* sums,
                    int64_t rows, int64_t columns, int64_t terms, bool adds) {
    multiply({left.from, left.row_step, left.term_step}, block, block_step, sums, block_step, rows,
             columns, terms, adds);
}
