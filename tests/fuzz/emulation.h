// tests/fuzz/emulation.h -- kernels for NVIDIA GPUs, run on the host: printed as CUDA C++, compiled
// by the host's compiler (tests/backends/cuda_emulation.h). A compiler's start costs more than a
// kernel, so kernels of many graphs are compiled together.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/fuzz/random_graphs.h"

namespace megjit::fuzz {

class Emulation {
public:
    void add(const Graph& graph);  // notes its kernels
    void compile();  // all that were noted
    // The graph, with the kernels that were compiled in place of the generated ones.
    std::vector<TensorRef> run(const Graph& graph, std::span<const TensorRef> inputs) const;
    size_t kernels() const { return texts_.size(); }

private:
    using Launch = void (*)(const unsigned* grid, unsigned threads, const uint64_t* words);
    void launch(const codegen::KernelIR& kernel, const codegen::LaunchShape& shape,
                std::span<const TensorRef> inputs, std::span<const TensorRef> outputs) const;

    std::map<std::string, std::string> texts_;  // by plan and kernel: what follows the entry's name
    std::map<std::string, Launch> launches_;
};

}  // namespace megjit::fuzz
