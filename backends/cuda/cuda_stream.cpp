#include "backends/cuda/cuda_stream.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "backends/cuda/products/product.h"
#include "backends/cuda/stream_graph.h"
#include "runtime/host/error.h"

namespace megjit::cuda {
namespace {

using runtime::cat;
using runtime::DeviceError;
using runtime::Ticket;

// Numbers of the driver's interface.
constexpr unsigned kNonBlockingStream = 1;  // does not wait for the legacy default stream
constexpr unsigned kWithoutTiming = 2;  // a flag of events
constexpr Result kNotReady = 600;

constexpr Ticket kMarkEvery = 16;
constexpr size_t kMostWorks = 4096;  // with so much work queued, the host waits for the oldest
constexpr int kFaults = 1024;  // number in a block
constexpr size_t kStagingBytes = size_t{8} << 20;
// So many uploads of so few bytes wait for the work behind them.
constexpr size_t kMostWaiting = 64, kWaitingBytes = 512;
constexpr size_t kTimesKept = size_t{1} << 16;

Address at(const void* p) { return reinterpret_cast<Address>(p); }

template <class... Numbers>
std::array<std::byte, sizeof...(Numbers) * sizeof(uint64_t)> bytes_of(Numbers... numbers) {
    return std::bit_cast<std::array<std::byte, sizeof...(Numbers) * sizeof(uint64_t)>>(
        std::array{static_cast<uint64_t>(numbers)...});
}

// After these the context does no more work: uncorrectable errors of memory (214) and NVLink (220),
// contained ones (226), errors of kernels (700 to 719, but for wrong calls that did nothing),
// tensor memory that was not freed (721), and unknown ones (999).
bool is_fatal(Result result) {
    constexpr Result kFatal[] = {214, 220, 226, 721, 999},
                     kHarmless[] = {701, 704, 705, 708, 712, 713};
    return std::ranges::count(kFatal, result) > 0 ||
           (result >= 700 && result <= 719 && std::ranges::count(kHarmless, result) == 0);
}

// Adds the op and the user's line, where the error does not name them itself.
std::exception_ptr named(const std::exception_ptr& error, const std::string& op,
                         const std::string& where) {
    try {
        std::rethrow_exception(error);
    } catch (const runtime::UserError& user) {
        runtime::Message message = user.message;
        if (message.at.empty()) message.at = where;
        return std::make_exception_ptr(runtime::UserError(user.kind, std::move(message)));
    } catch (const std::exception& other) {
        return std::make_exception_ptr(
            DeviceError(cat(op, ": ", other.what(), "\n  at:  ", where)));
    } catch (...) { return error; }
}

}  // namespace

// What this thread's next queued work is for, and where it reports a wrong value.
thread_local CudaStream::Work CudaStream::next;

CudaStream::CudaStream(Gpu& gpu, std::string device, runtime::Allocator* memory)
    : gpu_(gpu), device_(std::move(device)), memory_(memory) {}

// Precedes every call of the driver. The stream is made at the first use, so that a process that
// forks before leaves the GPU to its children.
Entered CudaStream::enter() const {
    Entered entered = gpu_.enter();
    std::call_once(made_, [this] {
        const Functions& call = gpu_.driver().call();
        const auto create = [&] { return call.create_stream(&own_, kNonBlockingStream); };
        gpu_.driver().check(gpu_.with_room(create, sizeof *flag_, "a stream"), "cuStreamCreate");
        handle_ = own_;
        flag_ = static_cast<int32_t*>(gpu_.pinned(sizeof *flag_));
        *flag_ = 0;
    });
    return entered;
}

// Live graphs keep the places of their faults, so that no fixed number suffices.
void CudaStream::add_faults() {
    const auto first = static_cast<int>(fault_blocks_.size()) * kFaults;
    fault_blocks_.push_back(static_cast<Fault*>(gpu_.pinned(kFaults * sizeof(Fault))));
    for (int i = kFaults; i-- > 0;) free_faults_.push_back(first + i);
}

int CudaStream::take_fault() {
    if (free_faults_.empty()) add_faults();
    const int place = free_faults_.back();
    free_faults_.pop_back();
    fault_at(place) = no_fault();
    return place;
}

Fault& CudaStream::fault_at(int place) {
    return fault_blocks_[static_cast<size_t>(place / kFaults)][place % kFaults];
}

CudaStream::~CudaStream() {
    if (!handle_) return;
    try {
        const Entered entered = gpu_.enter();
        const Functions& call = gpu_.driver().call();
        call.synchronize_stream(handle_);
        libraries_.reset();
        for (const Marker& marker : markers_) call.destroy_event(marker.event);
        for (Event event : spare_events_) call.destroy_event(event);
        for (const auto& [ticket, event] : times_) call.destroy_event(event);
        if (!memory_)
            for (const auto& [memory, bytes] : scratch_.blocks) call.free(memory);
        for (Fault* block : fault_blocks_) call.free_host(block);
        call.free_host(flag_);
        if (staging_) call.free_host(staging_);
        call.destroy_stream(own_);
    } catch (const DeviceError&) {  // a child of fork() leaves everything to the parent
        static_cast<void>(libraries_.release());
    }
}

// In a child of fork() the mutex may be locked for ever.
CudaStream::Lock CudaStream::locked() const {
    gpu_.refuse_child();
    return Lock(mutex_);
}

CudaStream::Relaxed::Relaxed(const CudaDriver& driver) : driver_(driver) {
    driver_.check(driver_.call().exchange_capture_mode(&mode_),
                  "cuThreadExchangeStreamCaptureMode");
}
CudaStream::Relaxed::~Relaxed() { driver_.call().exchange_capture_mode(&mode_); }

// ---- queueing

void CudaStream::refuse_dead() const {
    if (dead_) std::rethrow_exception(dead_);
}

template <class Queue>
void CudaStream::queue(const Piece& piece, const Queue& queue) {
    refuse_dead();
    Work work = next;  // an op may queue several pieces
    next.fault = -1;
    next.tell = {};
    if (!gpu_.compiles()) {
        if (work.fault >= 0) free_faults_.push_back(work.fault);
        return count(piece);
    }
    if (graph_) return graph_->add(piece, std::move(work), queue);
    if (outside_) try {
            refuse_unrecordable(piece);
        } catch (...) {
            if (work.fault >= 0) free_faults_.push_back(work.fault);
            throw;
        }
    const Result sent = send_waiting(), result = sent != 0 ? sent : queue();
    if (result != 0 && work.fault >= 0) free_faults_.push_back(work.fault);
    check(result, sent != 0 ? kUpload : piece.call);
    if (!outside_) note(std::move(work));
    else if (work.fault >= 0) recorded_.push_back(std::move(work));
}

void CudaStream::count(const Piece& piece) {
    if (!counted_) return;
    if (piece.call == std::string_view("cuLaunchKernel")) {
        ++counted_->kernels;
        counted_->blocks += int64_t{piece.size.grid[0]} * piece.size.grid[1] * piece.size.grid[2];
    } else if (piece.moved_bytes) {
        ++counted_->moves;
        counted_->moved_bytes += static_cast<double>(piece.moved_bytes);
    } else {
        ++counted_->calls;
    }
}

runtime::Queued CudaStream::count(const std::function<void()>& queue) {
    const Lock lock = locked();
    runtime::Queued counted;
    counted_ = &counted;
    try {
        queue();
    } catch (...) {
        counted_ = nullptr;
        throw;
    }
    counted_ = nullptr;
    return counted;
}

void CudaStream::list(Work work) {
    work.ticket = ++queued_;
    works_.push_back(std::move(work));
}

// Notes work that the driver took.
Ticket CudaStream::note(Work work) {
    list(std::move(work));
    if (queued_ - marked_ < kMarkEvery) return queued_;
    marked_ = queued_;
    event_at(queued_);
    const Functions& call = gpu_.driver().call();
    while (!markers_.empty() && call.query_event(markers_.front().event) == 0)
        retire(markers_.front().ticket);
    if (works_.size() > kMostWorks) await(markers_.front().ticket);
    return queued_;
}

void CudaStream::launch(const LoadedKernel& kernel, const LaunchSize& size, const void* parameters,
                        size_t bytes) {
    const Entered entered = enter();
    const Lock lock = locked();
    const Piece piece{.call = "cuLaunchKernel",
                      .function = kernel.function(),
                      .size = size,
                      .arguments = {static_cast<const std::byte*>(parameters), bytes},
                      .is_repeatable = true};
    queue(piece, [&] {
        void* extra[] = {kParameterBuffer, const_cast<void*>(parameters), kParameterBytes, &bytes,
                         kParameterEnd};
        return gpu_.driver().call().launch(
            kernel.function(), size.grid[0], size.grid[1], size.grid[2], size.block[0],
            size.block[1], size.block[2], size.shared_bytes, handle_, nullptr, extra);
    });
}

void CudaStream::Task::run() {
    {
        const std::lock_guard lock(stream.lost_mutex_);
        if (stream.has_failed_) return;  // its operands are lost
    }
    try {
        work();
    } catch (...) {
        *stream.flag_ = 1;
        Work failed = name;
        failed.ticket = ticket;
        stream.fail(failed, std::current_exception());
    }
}

void CudaStream::call(std::function<void()> work) {
    const Entered entered = enter();
    const Lock lock = locked();
    queue(Piece{.call = "cuLaunchHostFunc", .arguments = bytes_of(++calls_)},
          [&, name = Work{.op = next.op, .where = next.where}] {
        const auto task = std::make_shared<Task>(*this, std::move(work), name, queued_ + 1);
        if (graph_) graph_->keep(task);
        else task->own = task;
        const Result result = gpu_.driver().call().launch_host(handle_, [](void* data) {
            const auto own = std::exchange(static_cast<Task*>(data)->own, nullptr);
            static_cast<Task*>(data)->run();
        }, task.get());
        if (result != 0) task->own = nullptr;
        return result;
    });
}

LibraryStream& CudaStream::libraries() {
    if (!libraries_) libraries_ = std::make_unique<LibraryStream>(handle_);
    return *libraries_;
}

void CudaStream::ask_libraries(const std::function<void(LibraryStream&)>& ask) {
    const Entered entered = enter();
    const Lock lock = locked();
    refuse_dead();
    ask(libraries());
}

void CudaStream::run_library(const Product* product, std::span<const Address> inputs,
                             std::span<const Address> outputs, Address workspace,
                             const std::function<void(LibraryStream&)>& queue_work) {
    const Entered entered = enter();
    const Lock lock = locked();
    std::vector<Address> arguments{at(product), workspace};
    for (const std::span<const Address> list : {inputs, outputs})
        arguments.insert(arguments.end(), list.begin(), list.end());
    queue(Piece{.call = "a library's call",
                .arguments = std::as_bytes(std::span(arguments)),
                .is_repeatable = true},
          [&] {
        queue_work(libraries());
        return Result{0};
    });
}

void CudaStream::run_by(const std::function<void(StreamHandle)>& queue_work) {
    const Entered entered = enter();
    {
        const Lock lock = locked();
        refuse_dead();
        if (graph_) throw runtime::InternalError("a CUDA graph is made of what cannot be repeated");
        if (outside_) refuse_unrecordable(Piece{});
        send();
    }
    queue_work(handle_);
    const Lock lock = locked();
    note(next);
}

void CudaStream::lose(Ticket first, const std::exception_ptr& error) {
    const Entered entered = enter();
    *flag_ = 1;
    fail({.ticket = first}, error);
}

Address CudaStream::fault_of_next(Tell tell) {
    const Entered entered = enter();
    const Lock lock = locked();
    refuse_dead();
    next.tell = std::move(tell);
    next.fault = graph_ ? graph_->next_fault() : take_fault();
    return at(&fault_at(next.fault));
}

void CudaStream::clear(Address address, size_t bytes) {
    if (bytes == 0) return;
    const Entered entered = enter();
    const Lock lock = locked();
    queue(Piece{.call = "cuMemsetD8Async",
                .arguments = bytes_of(address, bytes),
                .moved_bytes = bytes,
                .is_repeatable = true},
          [&] { return gpu_.driver().call().fill(address, 0, bytes, handle_); });
}

// A library's graph has its own, which each launch clears: it may run beside other work.
CudaStream::Scratch CudaStream::scratch(size_t zeros, size_t rest) {
    constexpr size_t kAlign = 256;
    const Lock lock = locked();
    if (outside_) refuse_unrecordable(Piece{.is_repeatable = true});
    Shared& shared = outside_ ? recorded_scratch_ : scratch_;
    zeros = (zeros + kAlign - 1) / kAlign * kAlign;
    if (zeros > shared.zeros || rest > shared.rest) {
        const size_t more_zeros = std::max(zeros, 2 * shared.zeros),
                     more_rest = std::max(rest, 2 * shared.rest);
        const size_t bytes = more_zeros + more_rest;
        const Address memory = memory_ ? at(memory_->allocate(bytes)) : gpu_.allocate(bytes);
        if (!memory)
            throw DeviceError(cat(device_, ": out of memory: ", bytes,
                                  " bytes for what blocks of a kernel share"));
        shared.blocks.emplace_back(memory, bytes);
        shared.zeros = more_zeros;
        shared.rest = more_rest;
        clear(memory, shared.zeros);
    }
    const Address first = shared.blocks.back().first;
    return {first, first + shared.zeros};
}

void CudaStream::name_next(std::string_view op, const std::string& where) {
    next.op = op;
    next.where = where;
}

void CudaStream::copy(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    const Entered entered = enter();
    const Lock lock = locked();
    queue(Piece{.call = "cuMemcpyDtoDAsync",
                .arguments = bytes_of(at(to), at(from), bytes),
                .moved_bytes = 2 * bytes,
                .is_repeatable = true},
          [&] { return gpu_.driver().call().copy(at(to), at(from), bytes, handle_); });
}

// Lets a small upload wait for the work behind it. Others see it as queued: whatever tells them how
// far the stream has got sends it first. A guest's memory is used by work that is not queued here.
bool CudaStream::wait_to_send(void* to, const void* from, size_t bytes) {
    if (bytes > kWaitingBytes || !own_ || memory_ || !gpu_.compiles()) return false;
    const Lock lock = locked();
    if (graph_ || waiting_.size() == kMostWaiting) return false;
    refuse_dead();
    const auto* begin = static_cast<const std::byte*>(from);
    list({.op = next.op, .where = next.where});
    waiting_.push_back({queued_, to, {begin, begin + bytes}});
    return true;
}

// Returns the driver's error; what it did not take is sent with later work.
Result CudaStream::send_waiting() {
    for (; !waiting_.empty(); waiting_.pop_front()) {
        const auto& [ticket, to, data] = waiting_.front();
        const std::byte* staged = stage(data.data(), data.size());
        const Result result = gpu_.driver().call().upload(at(to), staged, data.size(), handle_);
        if (result != 0) return result;
        staged_.back().ticket = ticket;
    }
    return 0;
}

// The driver reads pinned memory when the copy runs, whichever code pinned it (for pageable memory
// its promises are weaker than needed): data that may change is first copied to memory of ours.
void CudaStream::upload(void* to, const void* from, size_t bytes, bool stays) {
    if (bytes == 0 || (!stays && wait_to_send(to, from, bytes))) return;
    const Entered entered = enter();
    const Lock lock = locked();
    const auto queue_upload = [&](void* target, const void* source, size_t count) {
        queue(Piece{.call = kUpload,
                    .arguments = bytes_of(at(target), at(source), count),
                    .moved_bytes = count,
                    .is_repeatable = source == flag_},
              [&] { return gpu_.driver().call().upload(at(target), source, count, handle_); });
    };
    if (stays) return queue_upload(to, from, bytes);
    refuse_dead();
    send();  // the parts of the ring are in the order of their tickets
    for (size_t done = 0; done < bytes;) {
        const size_t count = std::min(bytes - done, kStagingBytes / 4);
        const std::byte* staged = stage(static_cast<const std::byte*>(from) + done, count);
        queue_upload(static_cast<std::byte*>(to) + done, staged, count);
        staged_.back().ticket = queued_;
        done += count;
    }
}

// Copies to a part of the ring that no queued upload reads any more.
const std::byte* CudaStream::stage(const std::byte* from, size_t bytes) {
    if (!staging_) { staging_ = static_cast<std::byte*>(gpu_.pinned(kStagingBytes)); }
    while (staged_.size() > 1 && staged_.front().ticket <= done_) staged_.pop_front();
    size_t begin = staged_.empty() ? 0 : (staged_.back().end + 63) / 64 * 64;
    if (begin + bytes > kStagingBytes) begin = 0;
    const auto is_in_the_way = [&](const Staged& other) {
        return other.begin < begin + bytes && begin < other.end;
    };
    const auto last = std::find_if(staged_.rbegin(), staged_.rend(), is_in_the_way);
    if (last != staged_.rend()) {
        if (last->ticket > done_) await(last->ticket);
        staged_.erase(staged_.begin(), last.base());
    }
    staged_.push_back({begin, begin + bytes, 0});
    std::memcpy(staging_ + begin, from, bytes);
    return staging_ + begin;
}

void CudaStream::download(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    const Entered entered = enter();
    const Lock lock = locked();
    queue(Piece{.call = "cuMemcpyDtoHAsync", .arguments = bytes_of(at(to), at(from), bytes)},
          [&] { return gpu_.driver().call().download(to, at(from), bytes, handle_); });
}

bool CudaStream::copy_across(void* to, runtime::Stream& source, Ticket ready, const void* from,
                             size_t bytes) {
    auto* other = dynamic_cast<CudaStream*>(&source);
    if (!other) return false;
    if (bytes == 0) return true;
    wait(source, ready);
    gpu_.reach(other->gpu_);
    const Context target = gpu_.context(), origin = other->gpu_.context();
    const Entered entered = enter();
    const Lock lock = locked();
    queue(Piece{.call = "cuMemcpyPeerAsync", .arguments = bytes_of(at(to), at(from), bytes)}, [&] {
        return gpu_.driver().call().copy_peer(at(to), target, at(from), origin, bytes, handle_);
    });
    return true;
}

void CudaStream::wait(runtime::Stream& other, Ticket ticket) {
    if (&other == this || other.is_inline()) return;
    auto& source = dynamic_cast<CudaStream&>(other);
    Event event = nullptr;
    {
        const Entered entered = source.enter();
        const Lock lock = source.locked();
        if (ticket <= source.done_) return;
        event = source.event_at(ticket);
    }
    const Entered entered = enter();
    const Lock lock = locked();
    queue(Piece{.call = "cuStreamWaitEvent", .arguments = bytes_of(at(event))},
          [&] { return gpu_.driver().call().wait_event(handle_, event, 0); });
}

uintptr_t CudaStream::native() {
    const Entered entered = enter();
    const Lock lock = locked();
    if (!graph_) send();
    return at(handle_);
}

void CudaStream::wait_for_native(uintptr_t other) {
    const Entered entered = enter();
    const Lock lock = locked();
    refuse_dead();
    const Functions& call = gpu_.driver().call();
    Event event = spare_event();
    // A waiter waits for the event's last record; the event may be reused then.
    spare_events_.push_back(event);
    check(call.record_event(event, reinterpret_cast<StreamHandle>(other)), "cuEventRecord");
    queue(Piece{.call = "cuStreamWaitEvent", .arguments = bytes_of(at(event))},
          [&] { return call.wait_event(handle_, event, 0); });
}

void CudaStream::let_native_wait(uintptr_t other, Ticket ticket) {
    const Entered entered = enter();
    const Lock lock = locked();
    refuse_dead();
    if (ticket <= done_) return;
    if (is_captured(reinterpret_cast<StreamHandle>(other))) {  // it waits for nothing outside
        const Relaxed relaxed(gpu_.driver());
        send();
        return await(ticket);
    }
    check(
        gpu_.driver().call().wait_event(reinterpret_cast<StreamHandle>(other), event_at(ticket), 0),
        "cuStreamWaitEvent");
}

// What was queued on the former stream, here and by others, may still use the same memory. A stream
// that is captured waits for nothing: its work runs when the graph is launched, behind what is
// queued by then.
void CudaStream::follow(uintptr_t other) {
    const auto to = reinterpret_cast<StreamHandle>(other);
    const Entered entered = enter();
    const Lock lock = locked();
    if (is_captured(to)) {
        if (!outside_) outside_ = handle_;
        if (to != handle_) queue_on(to);
        return;
    }
    if (outside_) queue_on(std::exchange(outside_, nullptr));
    if (to == handle_) return;
    refuse_dead();
    const Functions& call = gpu_.driver().call();
    Event event = spare_event();
    spare_events_.push_back(event);
    check(call.record_event(event, handle_), "cuEventRecord");
    check(call.wait_event(to, event, 0), "cuStreamWaitEvent");
    queue_on(to);
}

bool CudaStream::is_captured(StreamHandle stream) {
    int captures = 0;
    check(gpu_.driver().call().capture_info(stream, &captures, nullptr, nullptr, nullptr, nullptr),
          "cuStreamGetCaptureInfo");
    return captures != 0;
}

bool CudaStream::is_recorded() const {
    const Lock lock = locked();
    return outside_ != nullptr;
}

void CudaStream::refuse_unrecordable(const Piece& piece) const {
    if (piece.is_repeatable && (is_repeating_ || piece.moved_bytes)) return;
    const bool is_new = piece.is_repeatable;
    runtime::user_error(
        {.what = cat(device_, ": this call cannot become a part of a CUDA graph"),
         .why = is_new ? "it has not run for these shapes before, or it waits for values"
                       : "it brings values of the host, such as random numbers, to the GPU: each "
                         "launch would bring the same ones",
         .fix = is_new ? "call it before the capture begins; with MEGJIT_COMPILE=sync one call is "
                         "enough"
                       : "leave what draws random numbers, and tensors of the CPU, out of the "
                         "graph"},
        runtime::ErrorKind::runtime);
}

void CudaStream::queue_on(StreamHandle handle) {
    handle_ = handle;
    if (libraries_) libraries_->follow(handle);
}

// ---- waiting

// Returns an event that follows the work of `ticket`.
Event CudaStream::event_at(Ticket ticket) {
    check_idle(send_waiting(), kUpload);
    return event_of_sent(ticket);
}

// Returns that event, where the work of `ticket` has been sent already.
Event CudaStream::event_of_sent(Ticket ticket) {
    for (const Marker& marker : markers_)
        if (marker.ticket >= ticket) return marker.event;
    Event event = spare_event();
    const StreamHandle noted_on = outside_ ? outside_ : handle_;
    if (const Result result = gpu_.driver().call().record_event(event, noted_on)) {
        spare_events_.push_back(event);
        check_idle(result, "cuEventRecord");
    }
    markers_.push_back({waiting_.empty() ? queued_.load() : waiting_.front().ticket - 1, event});
    return event;
}

Event CudaStream::spare_event() {
    Event event = nullptr;
    if (spare_events_.empty()) {
        check_idle(gpu_.driver().call().create_event(&event, kWithoutTiming), "cuEventCreate");
    } else {
        event = spare_events_.back();
        spare_events_.pop_back();
    }
    return event;
}

// Waits with the lock held: so much is queued that no more may be added.
void CudaStream::await(Ticket ticket) {
    check_idle(gpu_.driver().call().synchronize_event(event_of_sent(ticket)), "cuEventSynchronize");
    retire(ticket);
}

// Work up to `ticket` has run: reports its faults and forgets it.
void CudaStream::retire(Ticket ticket) {
    done_ = std::max(done_, ticket);
    while (!markers_.empty() && markers_.front().ticket <= done_) {
        spare_events_.push_back(markers_.front().event);
        markers_.pop_front();
    }
    while (!works_.empty() && works_.front().ticket <= done_) {
        const Work work = std::move(works_.front());
        works_.pop_front();
        if (work.fault < 0) continue;
        const Fault fault = std::exchange(fault_at(work.fault), no_fault());
        if (!work.is_of_graph) free_faults_.push_back(work.fault);
        if (fault.kind == 0) continue;
        try {
            work.tell(fault);
        } catch (...) { fail(work, std::current_exception()); }
    }
}

void CudaStream::fail(const Work& work, const std::exception_ptr& error) {
    const std::lock_guard lock(lost_mutex_);
    if (has_failed_ || range_of(work.ticket)) return;  // a consequence of what failed before
    has_failed_ = true;
    lost_.push_back(
        {work.ticket, std::numeric_limits<Ticket>::max(), named(error, work.op, work.where)});
}

// The driver does not say which work failed; the emulated one does.
void CudaStream::check(Result result, const char* call) {
    if (result == 0) return;
    if (!is_fatal(result)) gpu_.driver().check(result, call);
    std::string work;
    for (const Work& candidate : works_) {
        if (candidate.ticket <= done_ || candidate.op.empty()) continue;
        const std::string line = cat(candidate.op, " (", candidate.where, ")");
        if (work.find(line) != std::string::npos) continue;
        work += cat(work.empty() ? "" : ", ", line);
        if (work.size() > 300) break;
    }
    const CudaDriver::Emulation* emulation = gpu_.driver().emulation();
    try {
        gpu_.driver().check(result, call);
    } catch (const DeviceError& error) {
        dead_ = std::make_exception_ptr(DeviceError(
            cat(device_, " does no more work: ", error.what(),
                emulation && *emulation->last_fault() ? cat("\n  ", emulation->last_fault()) : "",
                work.empty() ? "" : cat("\n  it ran one of: ", work),
                "\n  fix: restart the process; what was on the GPU is lost")));
    }
    done_ = queued_;
    std::rethrow_exception(dead_);
}

// Checks the result of a call that helps to wait. A caller that gets the error frees memory that
// queued work uses, so that this work must have run by then.
void CudaStream::check_idle(Result result, const char* call) {
    if (result != 0 && !is_fatal(result)) gpu_.driver().call().synchronize_stream(handle_);
    check(result, call);
}

Ticket CudaStream::record() { return queued_; }

bool CudaStream::is_past(Ticket ticket) {
    if (!own_) return true;
    const Entered entered = enter();
    const Lock lock = locked();
    if (ticket <= done_) return true;
    if (gpu_.driver().call().query_event(event_at(ticket)) != 0) return false;
    retire(ticket);
    return true;
}

void CudaStream::synchronize(Ticket ticket) {
    if (!own_) return;
    const Entered entered = enter();
    Lock lock = locked();
    refuse_dead();
    if (ticket > done_) {
        Event event = event_at(ticket);
        lock.unlock();
        const Result result = gpu_.driver().call().synchronize_event(event);
        lock.lock();
        refuse_dead();
        check_idle(result, "cuEventSynchronize");
        retire(ticket);
    }
    std::exception_ptr error;
    {
        const std::lock_guard failing(lost_mutex_);
        if (!has_failed_ || lost_.back().first > ticket) return;
        has_failed_ = false;
        lost_.back().last = queued_;
        error = lost_.back().error;
    }
    clear_flag();
    std::rethrow_exception(error);
}

// Failed work has set the flag. While a library captures, waiting would spoil the capture.
void CudaStream::report() {
    if (!flag_ || !*static_cast<volatile const int32_t*>(flag_) || is_recorded()) return;
    synchronize(record());
    report_recorded();
}

// Nobody tells when a library launches its graph.
void CudaStream::report_recorded() {
    const Entered entered = enter();
    const Lock lock = locked();
    std::exception_ptr error;
    for (const Work& work : recorded_) {
        const Fault fault = std::exchange(fault_at(work.fault), no_fault());
        if (fault.kind == 0) continue;
        try {
            work.tell(fault);
        } catch (...) { error = named(std::current_exception(), work.op, work.where); }
    }
    if (!error) return;
    clear_flag();
    std::rethrow_exception(error);
}

// Behind the work that is lost with the failed one.
void CudaStream::clear_flag() {
    const Result result = gpu_.driver().call().launch_host(
        handle_, [](void* flag) { *static_cast<int32_t*>(flag) = 0; }, flag_);
    check(result, "cuLaunchHostFunc");
}

// Copies from pinned memory: the driver reads the flag when the work before has run.
void CudaStream::tell_failure(void* to) {
    const Entered entered = enter();
    upload(to, flag_, 1, true);
}

// Waits for an event: waiting for a stream that another thread captures would spoil the capture.
void CudaStream::wait_until_idle() noexcept try {
    if (!own_) return;
    const Entered entered = enter();
    Event event = nullptr;
    {
        const Lock lock = locked();
        event = event_at(queued_);
    }
    gpu_.driver().call().synchronize_event(event);
} catch (const DeviceError&) {}

const CudaStream::Lost* CudaStream::range_of(Ticket ticket) const {
    for (const Lost& range : lost_)
        if (range.first <= ticket && ticket <= range.last) return &range;
    return nullptr;
}

std::exception_ptr CudaStream::loss(Ticket ticket) {
    const Lock lock = locked();
    if (dead_) return dead_;
    const std::lock_guard failing(lost_mutex_);
    const Lost* range = range_of(ticket);
    // An error that nobody has got yet is thrown by synchronize().
    const bool is_told = range && !(has_failed_ && range == &lost_.back());
    return is_told ? range->error : nullptr;
}

// ---- time

Ticket CudaStream::record_time() {
    const Entered entered = enter();
    const Lock lock = locked();
    refuse_dead();
    Event event = nullptr;
    const Functions& call = gpu_.driver().call();
    if (times_.size() >= kTimesKept) {
        event = times_.begin()->second;
        times_.erase(times_.begin());
    } else {
        check(call.create_event(&event, 0), "cuEventCreate");
    }
    queue(Piece{.call = "cuEventRecord", .arguments = bytes_of(at(event))},
          [&] { return call.record_event(event, handle_); });
    times_[queued_] = event;
    return queued_;
}

double CudaStream::seconds_between(Ticket begin, Ticket end) const {
    const Entered entered = enter();
    const Lock lock = locked();
    const auto from = times_.find(begin), to = times_.find(end);
    if (from == times_.end() || to == times_.end()) return 0;  // one of them is too old
    float ms = 0;
    gpu_.driver().check(gpu_.driver().call().elapsed(&ms, from->second, to->second),
                        "cuEventElapsedTime");
    return ms * 1e-3;
}

}  // namespace megjit::cuda
