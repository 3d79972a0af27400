// codegen/checked_kernel.h -- MEGJIT_CHECK=1: the first run of a kernel is compared with the
// interpreter.
#pragma once

#include <memory>
#include <string>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// As `inner`, which launches `kernel` on host memory. The first run throws InternalError, with
// `name` and the first element that differs, unless it gives the interpreter's bits (any NaN for a
// NaN).
std::shared_ptr<const runtime::Executable> checked(std::shared_ptr<const runtime::Executable> inner,
                                                   KernelIR kernel,
                                                   std::vector<LaunchShape> launches,
                                                   std::string name);

}  // namespace megjit::codegen
