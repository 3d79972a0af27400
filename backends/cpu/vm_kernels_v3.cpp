// Compiled for x86-64-v3; see vm_kernels.h.
#include "backends/cpu/vm_kernels.inl"

namespace megjit::cpu {

VmKernels vm_kernels_v3() { return v3::kernels(); }

}  // namespace megjit::cpu
