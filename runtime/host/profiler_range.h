// runtime/host/profiler_range.h -- ranges for profilers of GPUs: they show what the host queues
// beside what the GPU does. NVIDIA's profiler, if it watches this process, names its library in
// NVTX_INJECTION64_PATH; we open that at the first range, and give it the functions' table that
// NVTX 3 describes. Without a profiler a range is a branch. The build needs nothing of NVIDIA's.
#pragma once

#include <string>

namespace megjit::runtime {

// A range of the calling thread, which lasts while the object lives; ranges nest. `name` is read at
// once.
class ProfilerRange {
public:
    explicit ProfilerRange(const std::string& name);
    ~ProfilerRange();
    ProfilerRange(const ProfilerRange&) = delete;
    ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace megjit::runtime
