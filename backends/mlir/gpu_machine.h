// backends/mlir/gpu_machine.h -- compiles LLVM IR to PTX for an NVIDIA GPU; it needs no GPU.
#pragma once

#include <string>

namespace llvm {
class Module;
}

namespace megjit::mlir_backend {

// `arch` is ten times the compute capability; for one that LLVM does not know, the newest one
// before it is used. DeviceError for an old one that is not supported. The module is optimized in
// place.
std::string to_ptx(llvm::Module& module, int arch);
void optimize_for_gpu(llvm::Module& module, int arch);  // the first part of to_ptx

}  // namespace megjit::mlir_backend
