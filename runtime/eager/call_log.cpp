#include "runtime/eager/call_log.h"

#include <pthread.h>

#include <mutex>
#include <utility>

#include "runtime/core/device.h"
#include "runtime/host/mutex.h"
#include "runtime/host/user_line.h"

namespace megjit::runtime {
namespace {

struct Log {
    Mutex mutex{"the log of calls"};
    std::vector<LoggedCall> calls;
    bool with_lines = false;
};

Log& log() {
    static auto* one = new Log;  // never destroyed: threads may outlive main()
    return *one;
}

int64_t nanoseconds(std::chrono::steady_clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

std::atomic<bool> CallLog::is_on_{false};

void CallLog::start(bool with_lines) {
    const std::lock_guard lock(log().mutex);
    log().calls.clear();
    log().with_lines = with_lines;
    is_on_ = true;
}

void CallLog::note(std::string call, Device& device, std::chrono::steady_clock::time_point begin,
                   std::chrono::steady_clock::time_point end) {
    LoggedCall noted{.call = std::move(call),
                     .device = std::string(device.name()),
                     .begin = nanoseconds(begin),
                     .end = nanoseconds(end),
                     .thread = static_cast<uint64_t>(pthread_self()),
                     .bytes = device.allocator().stats().in_use};
    if (log().with_lines) noted.where = user_line();  // takes Python's lock, and then ours
    const std::lock_guard lock(log().mutex);
    log().calls.push_back(std::move(noted));
}

std::vector<LoggedCall> CallLog::stop() {
    const std::lock_guard lock(log().mutex);
    is_on_ = false;
    return std::exchange(log().calls, {});
}

}  // namespace megjit::runtime
