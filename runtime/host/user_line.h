// runtime/host/user_line.h -- which line of the user's program is running, without knowing Python.
#pragma once

#include <string>

namespace megjit::runtime {

// `find` returns the line of the calling thread, or "" when it cannot be known. It takes about a
// microsecond.
void set_user_line(std::string (*find)());
std::string user_line();
const std::string* recorded_user_line();  // the line of the AtUserLine that lives, or null

// While one lives, user_line() of this thread is `where`: a recorded op is computed later than its
// line ran.
class AtUserLine {
public:
    explicit AtUserLine(const std::string& where);
    ~AtUserLine();
    AtUserLine(const AtUserLine&) = delete;

private:
    const std::string* outer_ = nullptr;
};

}  // namespace megjit::runtime
