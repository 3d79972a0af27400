// backends/cpu/epilogue.h -- the steps of an epilogue (runtime/ops/epilogue.h) after its product,
// in place.
#pragma once

#include <vector>

#include "backends/cpu/executable.h"
#include "runtime/ops/epilogue.h"

namespace megjit::cpu {

// How a product lies in memory: as [outer, channels, inner]; consecutive outer indices are `step`
// elements apart.
struct EpilogueRows {
    int64_t outer = 1, channels = 1, inner = 1, step = 1;
};

// Prepares `product`, then the steps on its result, which is float32.
Prepared steps_after(Prepared product, const std::vector<runtime::EpilogueStep>& steps,
                     const EpilogueRows& rows);

}  // namespace megjit::cpu
