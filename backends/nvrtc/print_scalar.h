// backends/nvrtc/print_scalar.h -- prints arithmetic of codegen's loops as CUDA C++ expressions of
// one lane.
#pragma once

#include <string>
#include <string_view>

#include "codegen/loops/loops.h"

namespace megjit::nvrtc {

std::string_view name_of(codegen::loops::Kind kind);  // "float"; memory holds the same types
std::string literal(codegen::loops::Kind kind, uint64_t bits);
// Prints the conversion of a value in memory to its compute type, and back.
std::string widened(runtime::DType dtype, const std::string& value);
std::string narrowed(runtime::DType dtype, const std::string& value);
// Prints an op on operands of this kind, which are names or literals.
std::string expression(runtime::ScalarOp op, codegen::loops::Kind kind, const std::string* v);
std::string bits_as(codegen::loops::Kind to,
                    const std::string& value);  // `value` has the other type of the same size

}  // namespace megjit::nvrtc
