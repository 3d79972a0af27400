// backends/cpu/kernels/contraction.inl -- see contraction.h. Included by each_isa.h.

#include "backends/cpu/kernels/small_product.inl"

template <class T>
void multiply_block(const LeftRows<T>& left, const T* block, int64_t block_step, T* sums,
                    int64_t rows, int64_t columns, int64_t terms, bool adds) {
    multiply({left.from, left.row_step, left.term_step}, block, block_step, sums, block_step, rows,
             columns, terms, adds);
}
