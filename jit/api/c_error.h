// jit/api/c_error.h -- the border of the C functions: no exception crosses it.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>

#include "jit/api/megjit/megjit.h"
#include "runtime/host/error.h"

namespace megjit::api {

// The status of the exception; its text becomes megjit_error_text() of this thread.
megjit_status noted(const std::exception_ptr& thrown) noexcept;

template <class Body>
megjit_status guarded(const Body& body) noexcept {
    try {
        body();
        return MEGJIT_OK;
    } catch (...) { return noted(std::current_exception()); }
}

// The error is the fault of a file.
class BadFile : public runtime::UserError {
public:
    explicit BadFile(const runtime::UserError& error) : UserError(error.kind, error.message) {}
};

template <class T>
T& not_null(T* pointer, const char* name) {
    if (!pointer)
        runtime::user_error({.what = runtime::cat(name, " is NULL"),
                             .fix = "give an address that is valid during the call"});
    return *pointer;
}

// Reads the options of a caller that may be of another version: fields that it does not know keep
// their defaults. UserError where it sets one that this library does not know.
template <class Options>
Options options_from(const Options* given, Options options) {
    if (!given) return options;
    const size_t size = given->size;
    if (size < sizeof(size_t))
        runtime::user_error({.what = runtime::cat("the size of the options is ", size),
                             .fix = "start from the ..._DEFAULT macro of megjit.h"});
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (size_t i = sizeof(Options); i < size; ++i)
        if (bytes[i])
            runtime::user_error({.what = "an option is set that this libmegjit.so does not know",
                                 .why = "the program was compiled for a later version",
                                 .fix = "install that version, or leave the option out"});
    std::memcpy(&options, given, std::min(size, sizeof(Options)));
    return options;
}

}  // namespace megjit::api
