// runtime/eager/call_log.h -- every kernel that eager mode runs, with its time: what a profiler
// asks for. When off, it costs a load of one flag. Traced steps keep profiles of their own
// (jit/run/program.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace megjit::runtime {

class Device;

struct LoggedCall {
    std::string call;  // the op and the types of its results: "add f32[2]"
    std::string device;
    int64_t begin = 0,
            end = 0;  // nanoseconds of std::chrono::steady_clock; of queueing, for queued work
    uint64_t thread = 0;  // pthread_self(), Python's threading.get_ident()
    size_t bytes = 0;  // bytes that the device holds afterwards
    std::string where = {};  // the user's line, if start() asked for it
};

// Every call is safe from any thread.
class CallLog {
public:
    static bool is_on() { return is_on_.load(std::memory_order_relaxed); }
    static void start(bool with_lines);
    static void note(std::string call, Device& device, std::chrono::steady_clock::time_point begin,
                     std::chrono::steady_clock::time_point end);
    static std::vector<LoggedCall> stop();  // calls since start(), as they ended

private:
    static std::atomic<bool> is_on_;
};

}  // namespace megjit::runtime
