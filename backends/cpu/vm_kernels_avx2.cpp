// Compiled for AVX2; see vm_kernels.h.
#include "backends/cpu/vm_kernels.inl"
