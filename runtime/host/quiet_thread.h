// runtime/host/quiet_thread.h -- how threads of ours begin: no signal reaches them, for signals
// belong to the threads of the program.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace megjit::runtime {

// std::system_error where the system refuses one.
template <class Body>
std::thread quiet_thread(Body&& body) {
    struct Blocked {
        sigset_t before;
        Blocked() {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    } const blocked;
    return std::thread(std::forward<Body>(body));
}

}  // namespace megjit::runtime
