// runtime/ops/block_weights.h -- weights in blocks of few bits, u8 [rows, blocks, bytes]. A block
// is a scale (float16, its lower byte first) and `group` integers:
//   8 bits: int8, value = scale * q                          (GGUF's Q8_0, where group is 32)
//   4 bits: 0..15, value = scale * (q - 8); byte i has element i in its lower half and element
//           i + group / 2 in its upper one                   (GGUF's Q4_0, where group is 32)
#pragma once

#include "runtime/core/op.h"

namespace megjit::runtime {

struct BlockWeights {
    int64_t rows = 0, blocks = 0;  // blocks of a row
    int64_t bits = 0, group = 0;

    static constexpr int64_t kScaleBytes = 2;
    int64_t block_bytes() const { return kScaleBytes + group * bits / 8; }
    int64_t row_bytes() const { return blocks * block_bytes(); }
    int64_t columns() const { return blocks * group; }
};

// Describes the last operand of dequantize_blocks or matmul_of_blocks. UserError where its type or
// the attribute `bits` is not as above.
BlockWeights block_weights_of(const OpCall& call);

}  // namespace megjit::runtime
