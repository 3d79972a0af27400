#include "python/bindings/loan.h"

#include <algorithm>
#include <atomic>

#include <pthread.h>

#include "runtime/host/error.h"

namespace megjit::python {
namespace {

// Changed under Python's lock; a waiting thread has let go of it.
std::atomic<int> open_loans = 0, ended_loans = 0;
thread_local int own_loans = 0;

// The threads that would give anything back are not there in a forked child.
[[maybe_unused]] const int kForkHandler =
    pthread_atfork(nullptr, nullptr, [] { open_loans = own_loans; });

}  // namespace

void Handle::wait_for_value() const {
    while (!value_) {
        if (open_loans == 0)
            runtime::user_error(
                {.what = "this Tensor has no value",
                 .why =
                     "its __init__ did not run, or this process is a fork of one that was updating it"},
                runtime::ErrorKind::type);
        if (own_loans)  // a signal's handler, for one
            runtime::user_error({.what = "this Tensor has no value just now",
                                 .why = "this very thread runs a traced function that updates it",
                                 .fix = "read it when the call has ended"},
                                runtime::ErrorKind::runtime);
        const int seen = ended_loans;
        const runtime::WithoutHostLock release;
        ended_loans.wait(seen);
    }
}

Loan::Loan(std::vector<Handle*> handles) : handles_(std::move(handles)) {
    if (handles_.empty()) return;
    // First all must be there: a thread that held one and waited for another would be waited for.
    const auto first_empty = [this] {
        return std::find_if(handles_.begin(), handles_.end(),
                            [](const Handle* handle) { return !handle->value_; });
    };
    for (auto it = first_empty(); it != handles_.end(); it = first_empty()) (*it)->wait_for_value();
    values.reserve(handles_.size());
    for (Handle* handle : handles_) values.push_back(std::move(handle->value_));
    ++open_loans;
    ++own_loans;
}

int Loan::ended() { return ended_loans; }

Loan::~Loan() {
    if (handles_.empty()) return;
    for (size_t i = 0; i < handles_.size(); ++i)
        if (values[i]) handles_[i]->value_ = std::move(values[i]);
    --own_loans;
    --open_loans;
    ++ended_loans;
    ended_loans.notify_all();
}

}  // namespace megjit::python
