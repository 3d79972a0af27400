// runtime/host/error.h -- the three kinds of error, and the one form that every message has.
// UserError: a mistake in the user's program. DeviceError: a failure of a driver or of memory.
// InternalError: a bug of ours. bindings/ maps `kind` to the Python class that users expect.
#pragma once

#include <charconv>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace megjit::runtime {

// Joins strings, numbers (floating ones as %g writes them) and characters. Graphs and keys are made
// of such texts: no stream is opened for them.
template <class... Parts>
std::string cat(const Parts&... parts) {
    std::string text;
    const auto append = [&text](const auto& part) {
        using Part = std::decay_t<decltype(part)>;
        char digits[32];
        if constexpr (std::is_convertible_v<Part, std::string_view>) text += std::string_view(part);
        else if constexpr (std::is_same_v<Part, char>) text += part;
        else if constexpr (std::is_same_v<Part, bool>) text += part ? '1' : '0';
        else if constexpr (std::is_floating_point_v<Part>)
            text.append(
                digits,
                std::to_chars(digits, std::end(digits), part, std::chars_format::general, 6).ptr);
        else text.append(digits, std::to_chars(digits, std::end(digits), part).ptr);
    };
    (append(parts), ...);
    return text;
}

inline std::string in_hex(uint64_t number) {
    char digits[16];
    return {digits, std::to_chars(digits, std::end(digits), number, 16).ptr};
}

// The Python exception class that a UserError becomes.
// operands: shapes, axes or dtypes that do not fit an op.
enum class ErrorKind : uint8_t {
    value,
    operands,
    type,
    index,
    runtime,
    trace,
    assertion,
    memory,
    os
};

struct Message {
    std::string what;  // "matmul: cannot multiply f32[8, 64] by f32[32, 10]"
    std::string why = {};  // which rule is broken, with the values
    std::string fix = {};  // how to fix it
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
