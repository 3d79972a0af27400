#include "runtime/host/user_line.h"

#include <atomic>
#include <utility>

namespace megjit::runtime {
namespace {

std::atomic<std::string (*)()> the_finder{nullptr};
thread_local const std::string* the_recorded_line = nullptr;

}  // namespace

void set_user_line(std::string (*find)()) { the_finder = find; }

const std::string* recorded_user_line() { return the_recorded_line; }

std::string user_line() {
    if (the_recorded_line) return *the_recorded_line;
    auto* find = the_finder.load();
    return find ? find() : std::string();
}

AtUserLine::AtUserLine(const std::string& where)
    : outer_(std::exchange(the_recorded_line, &where)) {}
AtUserLine::~AtUserLine() { the_recorded_line = outer_; }

}  // namespace megjit::runtime
