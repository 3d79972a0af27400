// backends/cuda/kernels/word_sort.h -- WordSort: sorts lines of 64-bit words in the GPU's memory.
#pragma once

#include "backends/cuda/kernels/executables.h"

namespace megjit::cuda {

class WordSort {
public:
    // Words of a line differ.
    WordSort(Gpu& gpu, int64_t lines, int64_t n);
    // Counts the bytes of the words, and as many again to merge into.
    size_t bytes() const { return 2 * part_bytes(); }
    // Sorts the words at the start of `memory`; returns where they lie then.
    void* operator()(CudaStream& stream, void* memory) const;

private:
    size_t part_bytes() const {
        return aligned(static_cast<size_t>(lines_ * n_) * sizeof(uint64_t));
    }

    int64_t lines_, n_;
    SourceKernel tiles_, merge_;
};

}  // namespace megjit::cuda
