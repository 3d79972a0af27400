// runtime/host/quiet_thread.h -- how our own threads begin: no signal reaches them, for signals
// belong to the threads of the program.
#pragma once

#include <thread>
#include <utility>

#include "runtime/host/blocked_signals.h"

namespace megjit::runtime {

// Starts such a thread. std::system_error where the system refuses one.
template <class Body>
std::thread quiet_thread(Body&& body) {
    const BlockedSignals inherited;
    return std::thread(std::forward<Body>(body));
}

}  // namespace megjit::runtime
