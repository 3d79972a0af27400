// codegen/launcher.h -- how code that names no backend runs a generated kernel on a device: the
// device's folder says how its kernels are launched, by the device's name.
#pragma once

#include <memory>
#include <string_view>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// One kernel over several spaces: the operands of all launches follow each other.
using LaunchKernel = std::shared_ptr<const runtime::Executable> (*)(KernelFn, const KernelIR&, std::vector<LaunchShape>);

void set_launcher(std::string_view device, LaunchKernel launch);
LaunchKernel launcher(std::string_view device);  // null for a device that runs no host code

}  // namespace megjit::codegen
