// runtime/ops/known.h -- the ops that passes make or look for, and that facts of other ops name. A
// pass that could ask for a fact of any op (OpDef) should not include this file.
#pragma once

#include "runtime/core/op.h"

namespace megjit::runtime::ops {

#define MEGJIT_KNOWN_OP(name) \
    inline const OpDef& name() { \
        static const OpDef& known = find_op(#name); \
        return known; \
    }

MEGJIT_KNOWN_OP(add)
MEGJIT_KNOWN_OP(adaptive_max_pool)
MEGJIT_KNOWN_OP(all_reduce_sum)
MEGJIT_KNOWN_OP(attention)
MEGJIT_KNOWN_OP(attention_grad)
MEGJIT_KNOWN_OP(cast)
MEGJIT_KNOWN_OP(checked_index)
MEGJIT_KNOWN_OP(concat)
MEGJIT_KNOWN_OP(cond)
MEGJIT_KNOWN_OP(conv)
MEGJIT_KNOWN_OP(conv_backward_data)
MEGJIT_KNOWN_OP(conv_backward_data_epilogue)
MEGJIT_KNOWN_OP(conv_backward_data_sums)
MEGJIT_KNOWN_OP(conv_backward_filter)
MEGJIT_KNOWN_OP(conv_epilogue)
MEGJIT_KNOWN_OP(conv_stats)
MEGJIT_KNOWN_OP(coordinates)
MEGJIT_KNOWN_OP(copy_to)
MEGJIT_KNOWN_OP(dropout_mask)
MEGJIT_KNOWN_OP(equal)
MEGJIT_KNOWN_OP(exp)
MEGJIT_KNOWN_OP(fixed_batch)
MEGJIT_KNOWN_OP(fma3)
MEGJIT_KNOWN_OP(full)
MEGJIT_KNOWN_OP(identity)
MEGJIT_KNOWN_OP(index_add)
MEGJIT_KNOWN_OP(index_get)
MEGJIT_KNOWN_OP(index_set)
MEGJIT_KNOWN_OP(less)
MEGJIT_KNOWN_OP(log)
MEGJIT_KNOWN_OP(logaddexp)
MEGJIT_KNOWN_OP(logical_and)
MEGJIT_KNOWN_OP(logical_not)
MEGJIT_KNOWN_OP(matmul)
MEGJIT_KNOWN_OP(matmul_epilogue)
MEGJIT_KNOWN_OP(max_pool)
MEGJIT_KNOWN_OP(mul)
MEGJIT_KNOWN_OP(neg)
MEGJIT_KNOWN_OP(relayout)
MEGJIT_KNOWN_OP(reshape)
MEGJIT_KNOWN_OP(scan)
MEGJIT_KNOWN_OP(shape_of)
MEGJIT_KNOWN_OP(slice)
MEGJIT_KNOWN_OP(slice_set)
MEGJIT_KNOWN_OP(softmax)
MEGJIT_KNOWN_OP(square)
MEGJIT_KNOWN_OP(stop_gradient)
MEGJIT_KNOWN_OP(sub)
MEGJIT_KNOWN_OP(transpose)
MEGJIT_KNOWN_OP(true_div)
MEGJIT_KNOWN_OP(where)
MEGJIT_KNOWN_OP(while_loop)

#undef MEGJIT_KNOWN_OP

}  // namespace megjit::runtime::ops
