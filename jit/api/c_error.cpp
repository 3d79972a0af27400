#include "jit/api/c_error.h"

#include "jit/plan/plan_ladder.h"
#include "runtime/core/allocator.h"
#include "runtime/core/live_blocks.h"

namespace megjit::api {
namespace {

// The text of the last call that failed. It is a fixed one where not even that has memory.
struct ErrorText {
    std::string text;
    const char* shown = "";

    void set(std::string_view what) noexcept {
        try {
            text = what;
            shown = text.c_str();
        } catch (...) { shown = "out of memory"; }
    }
};
thread_local ErrorText error_text;

}  // namespace

megjit_status noted(const std::exception_ptr& thrown) noexcept {
    try {
        std::rethrow_exception(thrown);
    } catch (const BadFile& error) {
        error_text.set(error.what());
        return MEGJIT_BAD_FILE;
    } catch (const jit::OverLimit& error) {
        error_text.set(error.what());
        return MEGJIT_OVER_LIMIT;
    } catch (const runtime::UserError& error) {
        error_text.set(error.what());
        return error.kind == runtime::ErrorKind::memory ? MEGJIT_OUT_OF_MEMORY
                                                        : MEGJIT_INVALID_ARGUMENT;
    } catch (const runtime::OutOfMemory& error) {
        try {
            error_text.set(runtime::message_of(error).text());
        } catch (...) { error_text.set(error.what()); }
        return MEGJIT_OUT_OF_MEMORY;
    } catch (const std::bad_alloc&) {
        error_text.set("out of memory");
        return MEGJIT_OUT_OF_MEMORY;
    } catch (const runtime::DeviceError& error) {
        error_text.set(error.what());
        return MEGJIT_DEVICE_ERROR;
    } catch (const std::exception& error) {
        error_text.set(error.what());
        return MEGJIT_INTERNAL_ERROR;
    } catch (...) {
        error_text.set("an unknown exception");
        return MEGJIT_INTERNAL_ERROR;
    }
}

}  // namespace megjit::api

extern "C" const char* megjit_error_text(void) { return megjit::api::error_text.shown; }
