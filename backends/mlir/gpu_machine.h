// backends/mlir/gpu_machine.h -- LLVM IR to PTX for an NVIDIA GPU; needs none.
#pragma once

#include <string>

namespace llvm {
class Module;
}

namespace megjit::mlir_backend {

// `arch` is ten times the compute capability; of one that LLVM does not know, the newest before it.
// DeviceError for one that is too old. The module is optimized in place.
std::string to_ptx(llvm::Module& module, int arch);
void optimize_for_gpu(llvm::Module& module, int arch);  // what to_ptx begins with

}  // namespace megjit::mlir_backend
