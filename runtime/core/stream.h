// runtime/core/stream.h -- Stream: a queue of work on a device, and when that work is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace megjit::runtime {

// How far a stream had got: all work that was queued before record() gave it. 0 is past from the
// start. A Storage keeps the one after which its data are there.
using Ticket = uint64_t;

// Work runs in the order in which it is queued. On a CPU it has run when the call returns;
// elsewhere it runs later, and what it throws is kept: the next synchronize() throws it, with the
// op and the user's line that queued it. What was queued in between has not run then and is lost,
// but for uploads and waits, which depend on nothing. Every call is safe from any thread.
class Stream {
public:
    virtual ~Stream() = default;

    virtual bool is_inline() const {
        return false;
    }  // has run when the call returns: no ticket but 0
    virtual Ticket record() = 0;
    // Waits until `ticket` is past. Throws what work before it threw, once.
    virtual void synchronize(Ticket ticket) = 0;
    void synchronize() { synchronize(record()); }
    // Has the work of `ticket` run? Waits for nothing.
    virtual bool is_past(Ticket ticket) { return (void)ticket, true; }
    // Later work waits for what `other`, a stream of any device, had queued before `ticket`.
    virtual void wait(Stream& other, Ticket ticket) = 0;
    // What synchronize() has told if for that the work of `ticket` was lost; else null.
    virtual std::exception_ptr loss(Ticket ticket) { return (void)ticket, nullptr; }
    void refuse_lost(Ticket ticket) {
        if (is_inline()) return;
        if (const std::exception_ptr error = loss(ticket)) std::rethrow_exception(error);
    }

    // Copies between addresses of the stream's device.
    virtual void copy(void* to, const void* from, size_t bytes) = 0;
    // From the host, whose memory may change when the call returns, unless it `stays` as it is
    // until the work has run.
    virtual void upload(void* to, const void* from, size_t bytes, bool stays = false) = 0;
    // To the host, whose memory must stay until the work has run.
    virtual void download(void* to, const void* from, size_t bytes) = 0;

    // From the memory of another stream's device to that of this one's, behind what `source` had
    // queued before `ready`. False where there is no way but through the host.
    virtual bool copy_across(void* to, Stream& source, Ticket ready, const void* from,
                             size_t bytes) {
        (void)to, (void)source, (void)ready, (void)from, (void)bytes;
        return false;
    }

    // Other libraries' streams of the same device, by the number that its driver gives them (of
    // CUDA a CUstream; 1 and 2 are the default ones). One must exist while it is named.
    virtual uintptr_t native() { return 0; }  // this one's
    // Later work waits for what `other` has been given.
    virtual void wait_for_native(uintptr_t other) { (void)other; }
    // What `other` is given later waits for the work of `ticket`.
    virtual void let_native_wait(uintptr_t other, Ticket ticket) { (void)other, (void)ticket; }

    // What the work that is queued next by this thread belongs to, for errors: "conv2d", "x.py:4".
    virtual void name_next(std::string_view op, const std::string& where) { (void)op, (void)where; }

    // Is what was queued behind a failure left out? If not it runs, on wrong values, and is lost
    // all the same: who overwrites what must survive looks first whether something has failed.
    virtual bool stops_at_failure() const { return true; }

    // Queues a look at the clock; once both are past, the seconds between two of them.
    virtual Ticket record_time() = 0;
    virtual double seconds_between(Ticket begin, Ticket end) const = 0;

    // Queues what `queue` queues on this stream, and nothing on others; `queue` may be called twice
    // for that. A caller that does it again and again, on the same addresses or on other ones,
    // holds in `kept` what the stream made of it.
    struct Kept {
        virtual ~Kept() = default;
    };
    virtual void repeat(std::unique_ptr<Kept>& kept, const std::function<void()>& queue) {
        (void)kept;
        queue();
    }
};

// Runs at once, on the host.
Stream& inline_stream();

}  // namespace megjit::runtime
