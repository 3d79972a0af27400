// backends/cpu/convert.h -- conversions between storage forms of a tensor: in bulk, and before and
// after kernels that compute float32 in one layout.
#pragma once

#include <span>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/executable.h"
#include "runtime/core/type.h"

namespace megjit::cpu {

// Converts between float32 and float16 or bfloat16, either way; bits as in runtime/host/half.h.
void convert_dtype(runtime::DType from, runtime::DType to, const void* source, void* target,
                   int64_t n);

// Converts any dtype between row_major and channels_last.
void convert_layout(const runtime::Type& from, runtime::Layout to, const void* source,
                    void* target);

// Prepares the same op with every float16 and bfloat16 operand in float32, and converts operands
// and results in the workspace. Null when there is none.
Prepared in_float32(const runtime::OpCall& call, std::span<const runtime::Type> outputs,
                    Prepare prepare);

// Prepares as in_float32 does, with operands of `main`'s rank (3 and above) in `main`'s layout.
Prepared in_float32_like(const runtime::Type& main, const runtime::OpCall& call,
                         std::span<const runtime::Type> outputs, Prepare prepare);

}  // namespace megjit::cpu
