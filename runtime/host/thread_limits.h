// runtime/host/thread_limits.h -- how many threads this process is granted: the least of the
// container's CPU quota, the cores that it may run on, and OMP_NUM_THREADS; at least one.
#pragma once

#include <string>

namespace megjit::runtime {

int granted_threads();

// CPUs that the control groups of this process grant (cgroup v2's cpu.max, v1's cpu.cfs_quota_us,
// of the group and those above it); infinity without a quota. `root` is where /proc and /sys lie,
// for tests.
double cpu_quota(const std::string& root = "");

}  // namespace megjit::runtime
