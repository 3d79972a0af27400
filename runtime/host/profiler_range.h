// runtime/host/profiler_range.h -- ranges for profilers of GPUs: what the host queues, beside what
// the GPU does. NVIDIA's profiler, if it watches this process, names its library in
// NVTX_INJECTION64_PATH; it is opened at the first range, and gets the functions' table that NVTX 3
// describes. Without one a range is a branch. Nothing of NVIDIA's is needed to build.
#pragma once

#include <string>

namespace megjit::runtime {

// A range of the calling thread, which lasts while this lives; ranges nest. `name` is read at once.
class ProfilerRange {
public:
    explicit ProfilerRange(const std::string& name);
    ~ProfilerRange();
    ProfilerRange(const ProfilerRange&) = delete;
    ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace megjit::runtime
