// This file is compiled for AVX-512; see vm_kernels.h.
#include "backends/cpu/vm/vm_kernels.inl"
