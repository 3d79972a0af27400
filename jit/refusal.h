// jit/refusal.h -- Refusal: what a trace has refused that an eager call does. A body that catches
// the error does something else than without a trace: its recording ends with the error.
#pragma once

#include <optional>

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

}  // namespace megjit::jit
