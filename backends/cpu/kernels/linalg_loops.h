// backends/cpu/kernels/linalg_loops.h -- the loops of linalg.inl, once for all files that are
// compiled together. Include after everything else, as each_isa.h.
#pragma once

#define MEGJIT_KERNELS "backends/cpu/kernels/linalg.inl"
#include "backends/cpu/each_isa.h"
