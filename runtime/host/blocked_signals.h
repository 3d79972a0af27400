// runtime/host/blocked_signals.h -- BlockedSignals: while one lives, signals wait or go to another
// thread.
#pragma once

#include <pthread.h>

#include <csignal>

namespace megjit::runtime {

// Faults of the thread's own code are still delivered: a handler that reports a crash must see
// them.
class BlockedSignals {
public:
    BlockedSignals() {
        static const sigset_t blocked = all_but_faults();
        pthread_sigmask(SIG_SETMASK, &blocked, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

private:
    static sigset_t all_but_faults() {
        sigset_t all;
        sigfillset(&all);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
            sigdelset(&all, fault);
        return all;
    }

    sigset_t before_;
};

}  // namespace megjit::runtime
