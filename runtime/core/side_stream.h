// runtime/core/side_stream.h -- a stream of the host whose work runs later, on a thread of its own:
// work that waits for other processes runs beside work that computes. The thread never spins, and
// its loops are not cut for other threads.
#pragma once

#include <functional>
#include <memory>

#include "runtime/core/stream.h"

namespace megjit::runtime {

// Ctrl-C in a thread that waits for the stream ends the work that runs on it.
Stream& side_stream();

// Queues work of the host on a stream. Waits for the work if the stream would run it later and is
// not the side stream.
void run_on_host(Stream& stream, std::function<void()> work);

// Work on the side stream: what it reads is held until it has run, or is skipped after a failure.
struct BesideWork {
    std::shared_ptr<const void> reads = {};
    bool is_queued = false;
    bool has_run = false;  // known once the side stream is synchronized
};

// While one lives, what the calling thread gives to run_on_host() runs on the side stream, whatever
// stream it names: the results are not there until that stream is synchronized.
class RunsBeside {
public:
    explicit RunsBeside(std::shared_ptr<BesideWork> work);
    ~RunsBeside();
    RunsBeside(const RunsBeside&) = delete;
};

// Is the calling thread the side stream's? It takes its interrupts from the thread that waits for
// it.
bool is_side_thread();

}  // namespace megjit::runtime
