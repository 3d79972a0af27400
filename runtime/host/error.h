// runtime/host/error.h -- the three kinds of error, and the one form that every message has.
// UserError: their program. DeviceError: driver or memory. InternalError: our bug.
// bindings/ maps `kind` to the Python class that users expect.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace megjit::runtime {

template <class... Parts>
std::string cat(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

// The Python exception class that a UserError becomes.
// operands: shapes, axes or dtypes that do not fit an op.
enum class ErrorKind : uint8_t { value, operands, type, index, runtime, trace, assertion, memory };

struct Message {
    std::string what;  // "matmul: cannot multiply f32[8, 64] by f32[32, 10]"
    std::string why = {};  // what rule is broken, with the values
    std::string fix = {};  // the way out
    std::string at = {};  // "train.py:41 in forward"; filled in by bindings/ when empty
    std::string text() const;  // at most four lines
};

class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class UserError : public Error {
public:
    UserError(ErrorKind kind, Message message)
        : Error(message.text()), kind(kind), message(std::move(message)) {}
    ErrorKind kind;
    Message message;
};

class DeviceError : public Error {
public:
    using Error::Error;
};

class InternalError : public Error {
public:
    explicit InternalError(const std::string& what)
        : Error("megjit internal error: " + what +
                "\n  fix: please report it with the output of MEGJIT_DUMP=all") {}
};

[[noreturn]] inline void user_error(Message message, ErrorKind kind = ErrorKind::value) {
    throw UserError(kind, std::move(message));
}

}  // namespace megjit::runtime
