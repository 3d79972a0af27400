// backends/cuda/kernels/word_sort.h -- WordSort: sorts lines of 64-bit words in the GPU's memory.
#pragma once

#include "backends/cuda/kernels/executables.h"

namespace megjit::cuda {

class WordSort {
public:
    // Sorts `lines` lines of n words each, all different within a line.
    WordSort(Gpu& gpu, int64_t lines, int64_t n);
    // Counts the bytes of the words, and room of the same size to merge into.
    size_t bytes() const { return 2 * part_bytes(); }
    // Sorts the words at the start of `memory`; returns the address of the sorted ones.
    void* operator()(CudaStream& stream, void* memory) const;

private:
    size_t part_bytes() const {
        return aligned(static_cast<size_t>(lines_ * n_) * sizeof(uint64_t));
    }

    int64_t lines_, n_;
    SourceKernel tiles_, merge_;
};

}  // namespace megjit::cuda
