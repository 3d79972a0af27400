#include "runtime/host/thread_limits.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <vector>

#include "runtime/host/debug.h"

namespace megjit::runtime {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

std::vector<std::string> split(const std::string& text, char sign) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, sign);) parts.push_back(part);
    return parts;
}

bool lists(const std::string& names, std::string_view name) {
    const auto parts = split(names, ',');
    return std::find(parts.begin(), parts.end(), name) != parts.end();
}

double ratio(double quota, double period) {
    return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

// What one group itself grants; its files may be missing.
double quota_of(const std::string& folder, bool is_v2) {
    double quota = -1, period = 0;
    if (is_v2) {
        std::ifstream(folder + "/cpu.max") >> quota >> period;  // "max 100000": the period stays 0
    } else {
        std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
        std::ifstream(folder + "/cpu.cfs_period_us") >> period;
    }
    return ratio(quota, period);
}

// Returns the least quota of the group and those above it, up to where the hierarchy is mounted.
double quota_above(const std::string& mount, std::string group, bool is_v2) {
    double least = kNoQuota;
    for (;;) {
        least = std::min(least, quota_of(mount + group, is_v2));
        if (group.empty()) return least;
        group.resize(group.rfind('/'));
    }
}

// The path of a group below its mount, of which a container may see only the part below `mounted`.
std::string below(const std::string& group, const std::string& mounted) {
    const std::string prefix = mounted == "/" ? "" : mounted;
    if (group.compare(0, prefix.size(), prefix) != 0) return "";
    const std::string rest = group.substr(prefix.size());
    return rest == "/" || rest.empty() || rest[0] != '/' ? "" : rest;
}

int allowed_cores() {
    for (size_t cores = 1024; cores <= 1 << 20; cores *= 2) {
        cpu_set_t* const set = CPU_ALLOC(cores);
        if (!set) break;
        const size_t bytes = CPU_ALLOC_SIZE(cores);
        const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;  // if not, the kernel's set is larger
    }
    return 1;
}

}  // namespace

double cpu_quota(const std::string& root) {
    // /proc/self/cgroup: "0::/group" (v2) or "4:cpu,cpuacct:/group".
    std::string v1, v2;
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1),
                          group = line.substr(second + 1);
        if (controllers.empty()) v2 = group;
        else if (lists(controllers, "cpu")) v1 = group;
    }
    // /proc/self/mountinfo: "id parent dev root mount options fields... - type source
    // super-options".
    double least = kNoQuota;
    std::ifstream mounts(root + "/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        const auto fields = split(line, ' ');
        const auto dash = std::find(fields.begin(), fields.end(), "-");
        if (fields.size() < 6 || fields.end() - dash < 4) continue;
        const bool is_v2 = dash[1] == "cgroup2";
        if (is_v2 ? v2.empty() : dash[1] != "cgroup" || v1.empty() || !lists(dash[3], "cpu"))
            continue;
        least = std::min(least,
                         quota_above(root + fields[4], below(is_v2 ? v2 : v1, fields[3]), is_v2));
    }
    return least;
}

int granted_threads() {
    double granted = std::min<double>(std::ceil(cpu_quota()),
                                      allowed_cores());  // rounds up: half a CPU is worth a thread
    if (const int asked = debug().omp_threads; asked > 0)
        granted = std::min<double>(granted, asked);
    return std::max(1, static_cast<int>(granted));
}

}  // namespace megjit::runtime
