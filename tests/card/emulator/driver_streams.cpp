// The driver's ABI: streams, events, host functions.
#include <algorithm>

#include "tests/card/emulator/calls.h"
#include "tests/card/emulator/graph.h"
#include "tests/card/emulator/works.h"

using namespace megjit::card;

namespace {

Event& checked(Event* event) {
    expect(event, Kind::event);
    return *event;
}

// A wait on a capturing stream spoils the capture.
void refuse_capturing(const Stream& stream, const char* call) {
    if (!stream.capture) return;
    stream.capture->invalidated = true;
    throw Fault(Result::capture_unsupported,
                std::string(call) + " on a stream that is being captured");
}

// Where the event stands, outside of captures.
Event::Record outside_captures(const Event& event) {
    Event::Record record = event.last();
    if (!record.capture) return record;
    record.capture->invalidated = true;
    throw Fault(Result::captured_event, "the event was recorded in a capture: nothing ran");
}

void see(Card& card, const Timeline::Point& point) {
    card.host_saw(point.card_ns());
    if (card.failed()) throw Fault(card.result());
}

}  // namespace

MEGJIT_CARD_API cuStreamCreateWithPriority(Stream** stream, unsigned flags, int priority) {
    return call(Needs::context, [&] {
        if (flags > 1) throw Fault(Result::invalid_value, text("stream flags %u", flags));
        out(stream) = current_card().create_stream(flags == 0, std::clamp(priority, -5, 0));
        remember(*stream, Kind::stream);
    });
}
MEGJIT_CARD_API cuStreamCreate(Stream** stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}
MEGJIT_CARD_API cuStreamDestroy_v2(Stream* stream) {
    return call(Needs::init, [&] {
        expect(stream, Kind::stream);
        if (stream->capture) {
            const std::shared_ptr<Capture> capture = stream->capture;
            capture->invalidated = true;
            if (capture->origin == stream) capture->end();
            else capture->streams.erase(stream);
        }
        forget(stream);
        stream->card.destroy_stream(stream);
    });
}
MEGJIT_CARD_API cuStreamGetPriority(Stream* stream, int* priority) {
    return call(Needs::context, [&] { out(priority) = stream_of(stream).priority; });
}
MEGJIT_CARD_API cuStreamGetFlags(Stream* stream, unsigned* flags) {
    return call(Needs::context, [&] { out(flags) = !stream_of(stream).blocking; });
}
MEGJIT_CARD_API cuStreamGetId(Stream* stream, unsigned long long* id) {
    return call(Needs::context, [&] { out(id) = stream_of(stream).serial; });
}
MEGJIT_CARD_API cuStreamGetCtx(Stream* stream, Context** context) {
    return call(Needs::context, [&] { out(context) = primary_context(stream_of(stream).card); });
}
MEGJIT_CARD_API cuStreamGetDevice(Stream* stream, int* id) {
    return call(Needs::context, [&] { out(id) = stream_of(stream).card.ordinal(); });
}
MEGJIT_CARD_API cuStreamSynchronize(Stream* stream) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        refuse_capturing(on, "cuStreamSynchronize");
        check_stream_for_work(on);
        // The legacy stream stands for every blocking one.
        const Timeline::Point point =
            &on == &on.card.legacy() ? on.card.queue(on, nullptr) : on.line->last();
        point.wait();
        see(on.card, point);
    });
}
MEGJIT_CARD_API cuStreamQuery(Stream* stream) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        refuse_capturing(on, "cuStreamQuery");
        const Timeline::Point point = on.line->last();
        if (!point.reached()) throw Fault(Result::not_ready);
        see(on.card, point);
    });
}
MEGJIT_CARD_API cuStreamWaitEvent(Stream* stream, Event* handle, unsigned) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        const Event::Record event = checked(handle).last();
        check_stream_for_work(on);
        if (event.capture && event.capture->ended)
            throw Fault(Result::captured_event,
                        "the event was recorded in a capture that has ended");
        if (event.capture) {
            if (on.capture && on.capture != event.capture)
                throw Fault(Result::capture_merge, "the event belongs to another capture");
            if (&on == &on.card.legacy())
                throw Fault(Result::capture_implicit, "stream 0 cannot join a capture");
            if (!on.capture) {
                on.capture = event.capture;
                on.capture->streams.insert(&on);
                on.frontier.clear();
            }
            on.frontier.insert(on.frontier.end(), event.frontier.begin(), event.frontier.end());
            return;
        }
        if (on.capture)
            throw Fault(Result::capture_isolation,
                        "a captured stream waits for an event that was recorded outside");
        if (event.is_there) on.card.queue(on, nullptr, {event.point});
    });
}
MEGJIT_CARD_API cuLaunchHostFunc(Stream* stream, void (*function)(void*), void* data) {
    return call(Needs::context, [&] {
        if (!function) throw Fault(Result::invalid_value, "the host function is null");
        submit(stream_of(stream), std::make_shared<HostWork>(function, data));
    });
}

// ---- events

MEGJIT_CARD_API cuEventCreate(Event** event, unsigned flags) {
    return call(Needs::context, [&] {
        constexpr unsigned kBlockingSync = 1, kDisableTiming = 2;
        if (flags & ~(kBlockingSync | kDisableTiming))
            throw Fault(Result::invalid_value, text("event flags %u", flags));
        out(event) = new Event(current_card(), !(flags & kDisableTiming));
        remember(*event, Kind::event);
    });
}
MEGJIT_CARD_API cuEventDestroy_v2(Event* event) {
    return call(Needs::init, [&] {
        checked(event);
        forget(event);
        delete event;
    });
}
MEGJIT_CARD_API cuEventRecord(Event* handle, Stream* stream) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        Event& event = checked(handle);
        if (&event.card != &on.card)
            throw Fault(Result::invalid_handle, "the event was made for another card");
        check_stream_for_work(on);
        event.set({.is_there = true,
                   .point = on.capture ? Timeline::Point() : on.card.queue(on, nullptr),
                   .capture = on.capture,
                   .frontier = on.frontier});
    });
}
MEGJIT_CARD_API cuEventRecordWithFlags(Event* event, Stream* stream, unsigned flags) {
    if (flags) return static_cast<int>(Result::not_supported);  // external nodes in captures
    return cuEventRecord(event, stream);
}
MEGJIT_CARD_API cuEventQuery(Event* handle) {
    return call(Needs::context, [&] {
        const Event& event = checked(handle);
        const Timeline::Point point = outside_captures(event).point;
        if (!point.reached()) throw Fault(Result::not_ready);
        see(event.card, point);
    });
}
MEGJIT_CARD_API cuEventSynchronize(Event* handle) {
    return call(Needs::context, [&] {
        const Event& event = checked(handle);
        const Timeline::Point point = outside_captures(event).point;
        point.wait();
        see(event.card, point);
    });
}
static int elapsed(float* ms, Event* from, Event* to, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        const Event &first = checked(from), &second = checked(to);
        const Event::Record a = outside_captures(first), b = outside_captures(second);
        if (!first.timed || !second.timed || !a.is_there || !b.is_there ||
            &first.card != &second.card)
            throw Fault(Result::invalid_handle,
                        "elapsed time needs two timed, recorded events of one card");
        if (!a.point.reached() || !b.point.reached()) throw Fault(Result::not_ready);
        out(ms) = static_cast<float>((b.point.card_ns() - a.point.card_ns()) * 1e-6);
    }, caller);
}
MEGJIT_CARD_API cuEventElapsedTime(float* ms, Event* from, Event* to) {
    return elapsed(ms, from, to);
}
MEGJIT_CARD_API cuEventElapsedTime_v2(float* ms, Event* from, Event* to) {
    return elapsed(ms, from, to);
}

// ---- capture

MEGJIT_CARD_API cuStreamBeginCapture_v2(Stream* stream, int mode) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        if (mode < 0 || mode > 2) throw Fault(Result::invalid_value, text("capture mode %d", mode));
        if (&on == &on.card.legacy())
            throw Fault(Result::capture_unsupported, "stream 0 cannot be captured");
        if (on.capture) throw Fault(Result::illegal_state, "the stream is already being captured");
        on.capture = std::make_shared<Capture>(on, static_cast<CaptureMode>(mode));
        on.frontier.clear();
    });
}
MEGJIT_CARD_API cuStreamEndCapture(Stream* stream, Graph** graph) {
    return call(Needs::context, [&] {
        out(graph) = nullptr;
        *graph = end_capture(stream_of(stream)).release();
        remember(*graph, Kind::graph);
    });
}
MEGJIT_CARD_API cuStreamIsCapturing(Stream* stream, int* status) {
    return call(Needs::context, [&] {
        const Stream& on = stream_of(stream);
        out(status) = !on.capture ? 0 : on.capture->invalidated ? 2 : 1;
    });
}
MEGJIT_CARD_API cuStreamGetCaptureInfo_v2(Stream* stream, int* status, uint64_t* id, Graph** graph,
                                          Node* const** after, size_t* count) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        out(status) = !on.capture ? 0 : on.capture->invalidated ? 2 : 1;
        if (!on.capture) return;
        if (id) *id = on.capture->id;
        if (graph) *graph = on.capture->graph.get();
        if (after) *after = on.frontier.data();
        if (count) *count = on.frontier.size();
    });
}
MEGJIT_CARD_API cuStreamGetCaptureInfo_v3(Stream* stream, int* status, uint64_t* id, Graph** graph,
                                          Node* const** after, const void** edges, size_t* count) {
    if (edges) *edges = nullptr;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, after, count);
}
MEGJIT_CARD_API cuThreadExchangeStreamCaptureMode(int* mode) {
    return call(Needs::init, [&] {
        if (out(mode) < 0 || *mode > 2)
            throw Fault(Result::invalid_value, text("capture mode %d", *mode));
        *mode = static_cast<int>(exchange_capture_mode(static_cast<CaptureMode>(*mode)));
    });
}
