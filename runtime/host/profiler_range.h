// runtime/host/nvtx.h -- ranges for NVIDIA's profilers: what the host queues, beside what the GPU
// does. A profiler that watches this process names its library in NVTX_INJECTION64_PATH; it is
// opened at the first range, and gets the functions' table that NVTX 3 describes. Without one a
// range is a branch. Nothing of NVIDIA's is needed to build.
#pragma once

#include <string>

namespace megjit::runtime {

// Of the calling thread, while it lives; ranges nest. `name` is read at once.
class NvtxRange {
public:
    explicit NvtxRange(const std::string& name);
    ~NvtxRange();
    NvtxRange(const NvtxRange&) = delete;
    NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace megjit::runtime
