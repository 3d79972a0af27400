// jit/step/refusal.h -- Refusal: what a trace has refused that an eager call does. A body that
// catches the error does something else than without a trace: its recording ends with the error.
// RefusingTracer: a tracer whose body may do so.
#pragma once

#include <optional>

#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"

namespace megjit::jit {

class Refusal {
public:
    void note(const runtime::UserError& error) {
        if (!first_) first_ = error;
    }
    // The body asks for types alone, and goes on without a value on purpose.
    void forget() { first_.reset(); }
    // Throws what was noted first, if anything was.
    void raise() const {
        if (!first_) return;
        runtime::Message message = first_->message;
        message.why += runtime::cat(message.why.empty() ? "" : "; ",
                                    "the body has caught this error, so its results are not those "
                                    "that it has without a trace");
        throw runtime::UserError(first_->kind, std::move(message));
    }

private:
    std::optional<runtime::UserError> first_;
};

class RefusingTracer : public runtime::Tracer {
public:
    // An error of this trace, or of one within it, without which its results would be wrong.
    virtual void note_refusal(const runtime::UserError& error) { refusal_.note(error); }

protected:
    // Throws an error of the trace, which an eager call would not raise.
    [[noreturn]] void refuse(runtime::Message message,
                             runtime::ErrorKind kind = runtime::ErrorKind::value) {
        const runtime::UserError error(kind, std::move(message));
        note_refusal(error);
        throw error;
    }

    Refusal refusal_;
};

}  // namespace megjit::jit
