// tests/fuzz/judge.h -- runs a subject through the passes and a back-end, and compares with the
// eager kernels.
#pragma once

#include <string>

#include "tests/fuzz/random_graphs.h"

namespace megjit::fuzz {

// Wild subjects go with numerics="exact", tame ones with level 3 and all that it may change.
Graph optimized(const Graph& graph, Temper temper,
                std::initializer_list<std::string_view> skipped = {});

// "" or the first result of a Program on the device that is not what interpret() gives for the
// graph as it was (tame subjects: on the host; wild ones on that device, bit for bit); or an
// error's text. Kernels come from the default compiler (MGB_JIT_BACKEND), every input may be
// overwritten. The program runs several times, and must give the same bits.
std::string fault_of(const Subject& subject, Temper temper, runtime::Device& device);

// What a program moves and holds.
struct Footprint {
    size_t traffic = 0;  // bytes that all steps read and write
    size_t arena = 0;  // bytes
    size_t peak_live = 0;  // bytes of the values that live at once, inputs and outputs included
    size_t kernels = 0;
};
Footprint footprint_of(const Graph& graph, const Graph& recorded);

}  // namespace megjit::fuzz
