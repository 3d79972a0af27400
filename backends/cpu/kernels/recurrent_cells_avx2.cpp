// This file is compiled for AVX2; see recurrent_cells.h.
#include "backends/cpu/kernels/recurrent_cells.inl"
