// codegen/object_loader.h -- turns relocatable object code into a callable without any compiler's
// linker: so kernels that were compiled elsewhere run on a machine without LLVM. Where MLIR is
// installed, it loads its own code.
#pragma once

#include <string_view>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// The address of `megjit_kernel` in an ELF object for this architecture; the code stays loaded
// until the process ends. Throws DeviceError for an object that is not sound, or has parts that no
// kernel needs.
KernelFn load_object(std::string_view object);

}  // namespace megjit::codegen
