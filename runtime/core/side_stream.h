// runtime/core/side_stream.h -- a stream of the host whose work runs later, on a thread of its own:
// what waits for other processes runs beside what computes. The thread never spins, and its loops
// are not cut for others.
#pragma once

#include <functional>
#include <memory>

#include "runtime/core/stream.h"

namespace megjit::runtime {

// An interrupt (Ctrl-C) of a thread that waits for it ends what it does.
Stream& side_stream();

// Queues work of the host on a stream. This waits for the work where a stream other than the side
// stream would run it later.
void run_on_host(Stream& stream, std::function<void()> work);

// Work that runs beside: what it reads is held until it has run, or is left out behind a failure.
struct BesideWork {
    std::shared_ptr<const void> reads = {};
    bool is_queued = false;
    bool has_run = false;  // known once the side stream is synchronized
};

// While one lives, what the calling thread gives to run_on_host() runs on the side stream, whatever
// stream it names: until that is synchronized, its results are not there.
class RunsBeside {
public:
    explicit RunsBeside(std::shared_ptr<BesideWork> work);
    ~RunsBeside();
    RunsBeside(const RunsBeside&) = delete;
};

// Is the calling thread the side stream's? Its interrupts are those of the thread that waits for
// it.
bool is_side_thread();

}  // namespace megjit::runtime
