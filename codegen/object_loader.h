// codegen/object_loader.h -- relocatable object code to a callable without any compiler's linker:
// how kernels that were compiled elsewhere run on a machine without LLVM. MLIR that is installed
// loads its own.
#pragma once

#include <string_view>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// The address of `megjit_kernel` in an ELF object for x86-64; the code stays loaded until the
// process ends. Throws DeviceError for anything that is not sound, or that a kernel has no need of.
KernelFn load_object(std::string_view object);

}  // namespace megjit::codegen
