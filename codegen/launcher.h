// codegen/launcher.h -- how code that names no backend runs a generated kernel on a device: the
// device's folder says how its kernels are launched, by the device's name.
#pragma once

#include <memory>
#include <string_view>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// One kernel over several spaces: the operands of all launches follow each other. Without a
// function the device runs the scalar program itself, slower but to the same bits; only where
// runs_without_code() holds.
using LaunchKernel = std::shared_ptr<const runtime::Executable> (*)(KernelFn, const KernelIR&,
                                                                    std::vector<LaunchShape>);

void set_launcher(std::string_view device, LaunchKernel launch);
bool runs_without_code(const KernelIR& kernel);  // element-wise, of plain operands
LaunchKernel launcher(std::string_view device);  // null for a device that runs no host code

}  // namespace megjit::codegen
