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

// How far a stream had got: a ticket covers all work that was queued before record() returned it. 0
// is past from the start. A Storage keeps the ticket after which its data are there.
using Ticket = uint64_t;

// Work runs in the order in which it is queued. On a CPU it has run when the call returns;
// elsewhere it runs later, and its error is kept: the next synchronize() throws it, with the op and
// the user's line that queued it. Work queued in between does not run and is lost, except for
// uploads and waits, which depend on nothing. Every call is safe from any thread.
class Stream {
public:
    virtual ~Stream() = default;

    virtual bool is_inline() const {
        return false;
    }  // work has run when a call returns: the only ticket is 0
    virtual Ticket record() = 0;
    // Waits until `ticket` is past. Throws the error of the work before it, once.
    virtual void synchronize(Ticket ticket) = 0;
    void synchronize() { synchronize(record()); }
    // Has the work of `ticket` run? Waits for nothing.
    virtual bool is_past(Ticket ticket) { return (void)ticket, true; }
    // Later work waits for what `other`, a stream of any device, had queued before `ticket`.
    virtual void wait(Stream& other, Ticket ticket) = 0;
    // The error that synchronize() has thrown, if the work of `ticket` was lost because of it; else
    // null.
    virtual std::exception_ptr loss(Ticket ticket) { return (void)ticket, nullptr; }
    void refuse_lost(Ticket ticket) {
        if (is_inline()) return;
        if (const std::exception_ptr error = loss(ticket)) std::rethrow_exception(error);
    }

    // Copies between addresses of the stream's device.
    virtual void copy(void* to, const void* from, size_t bytes) = 0;
    // Copies from the host, whose memory may change when the call returns, unless it `stays` as it
    // is until the work has run.
    virtual void upload(void* to, const void* from, size_t bytes, bool stays = false) = 0;
    // Copies to the host, whose memory must stay until the work has run.
    virtual void download(void* to, const void* from, size_t bytes) = 0;

    // Copies from the memory of another stream's device to that of this one's, after what `source`
    // had queued before `ready`. Returns false where the only way is through the host.
    virtual bool copy_across(void* to, Stream& source, Ticket ready, const void* from,
                             size_t bytes) {
        (void)to, (void)source, (void)ready, (void)from, (void)bytes;
        return false;
    }

    // Streams of other libraries on the same device are named by the number that its driver gives
    // them (with CUDA a CUstream; 1 and 2 are the default ones). A stream must exist while it is
    // named.
    virtual uintptr_t native() { return 0; }  // the number of this stream
    // Later work waits for what `other` has been given.
    virtual void wait_for_native(uintptr_t other) { (void)other; }
    // Work that `other` is given later waits for the work of `ticket`.
    virtual void let_native_wait(uintptr_t other, Ticket ticket) { (void)other, (void)ticket; }

    // For streams of a guest (Device::guest): from now on work is queued on `other`, behind what
    // was queued here before.
    virtual void follow(uintptr_t other) { (void)other; }
    // Is the stream captured that this one follows? What is queued then becomes a part of a graph
    // of the library's, runs when that is launched, as often as it is, and keeps the memory that it
    // has now.
    virtual bool is_recorded() const { return false; }
    // Throws the error of work that is known to have failed, once. Waits for nothing.
    virtual void report() {}

    // Names what this thread's next queued work belongs to, for errors: "conv2d", "x.py:4".
    virtual void name_next(std::string_view op, const std::string& where) { (void)op, (void)where; }

    // Is work queued after a failure skipped? If not, it runs on wrong values, and is lost all the
    // same: a caller that overwrites what must survive first checks whether something has failed.
    virtual bool stops_at_failure() const { return true; }

    // Queues a reading of the clock; once two readings are past, seconds_between() gives the time
    // between them.
    virtual Ticket record_time() = 0;
    virtual double seconds_between(Ticket begin, Ticket end) const = 0;

    // Queues what `queue` queues on this stream, and nothing on others; `queue` may be called
    // twice. A caller that repeats it, on the same or on other addresses, holds in `kept` what the
    // stream made of it.
    struct Kept {
        virtual ~Kept() = default;
    };
    virtual void repeat(std::unique_ptr<Kept>& kept, const std::function<void()>& queue) {
        (void)kept;
        queue();
    }
};

// A stream of the host whose work runs at once.
Stream& inline_stream();

}  // namespace megjit::runtime
