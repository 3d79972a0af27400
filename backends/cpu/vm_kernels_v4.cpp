// Compiled for x86-64-v4; see vm_kernels.h.
#include "backends/cpu/vm_kernels.inl"

namespace megjit::cpu {

VmKernels vm_kernels_v4() { return v4::kernels(); }

}  // namespace megjit::cpu
