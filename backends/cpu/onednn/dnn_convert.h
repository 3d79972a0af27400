// backends/cpu/onednn/dnn_convert.h -- bulk conversions between storage forms of a tensor.
#pragma once

#include "runtime/core/type.h"

namespace megjit::cpu {

// Converts between float32 and float16 or bfloat16, either way; bits as in runtime/host/half.h.
void convert_dtype(runtime::DType from, runtime::DType to, const void* source, void* target,
                   int64_t n);

// Converts any dtype between row_major and channels_last.
void convert_layout(const runtime::Type& from, runtime::Layout to, const void* source,
                    void* target);

}  // namespace megjit::cpu
