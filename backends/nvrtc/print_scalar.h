// backends/nvrtc/print_scalar.h -- legal scalar instructions (codegen/legalize.h) and storage types
// as CUDA C++. Nothing of the user's text reaches it: instructions are enums, numbers are bits.
#pragma once

#include <string>
#include <string_view>

#include "runtime/scalar.h"

namespace megjit::nvrtc {

std::string_view type_name(runtime::ScalarType type);  // "float"
std::string_view storage_name(runtime::DType dtype);  // "unsigned short"
// A value of memory as a value of its compute type, and back.
std::string widened(runtime::DType dtype, const std::string& value);
std::string narrowed(runtime::DType dtype, const std::string& value);
// The value of `id`, of values named v0, v1, ...; every instruction but `input`.
std::string expression(const runtime::ScalarProgram& program, int id);

}  // namespace megjit::nvrtc
