// This file is compiled for AVX2; see vm_kernels.h.
#include "backends/cpu/vm/vm_kernels.inl"
