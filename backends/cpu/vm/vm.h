// backends/cpu/vm/vm.h -- runs the scalar program of a kernel block by block, with one
// ahead-of-time compiled loop an instruction: eager mode needs no code generator and starts at
// once. The loops and the generated kernels give the same bits, because both expand
// runtime/core/scalar_math.h.
#pragma once

#include <memory>

#include "codegen/kernel_ir.h"
#include "runtime/core/device.h"

namespace megjit::cpu {

std::shared_ptr<const runtime::Executable> prepare_vm(const codegen::KernelIR& kernel,
                                                      const codegen::LaunchShape& launch);

}  // namespace megjit::cpu
