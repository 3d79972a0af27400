// backends/cuda/cuda_stream.h -- CudaStream: a queue of work on one GPU, and the failures of that
// work.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/gpu.h"
#include "runtime/core/stream.h"

namespace megjit::cuda {

class LibraryStream;
class Product;

struct LaunchSize {
    uint32_t grid[3] = {1, 1, 1};  // blocks
    uint32_t block[3] = {1, 1, 1};  // threads
    uint32_t shared_bytes = 0;
    bool operator==(const LaunchSize&) const = default;
};

// A kernel that checks values writes this where a value is wrong: kind 0 means that all are right.
// It also sets the stream's flag.
struct Fault {
    int32_t kind = 0;
    int32_t axis = 0;
    int64_t value = 0;
    Address has_failed = 0;
};
// Throws the error that the fault means.
using Tell = std::function<void(const Fault&)>;

// Tickets count queued work; one of sixteen, and every one that another stream waits for, has an
// event. Uploads of few bytes are sent with the work behind them, which enters the driver for both.
class CudaStream final : public runtime::Stream {
public:
    using Ticket = runtime::Ticket;

    // `memory`: where the stream takes its scratch from; null: from the driver.
    CudaStream(Gpu& gpu, std::string device, runtime::Allocator* memory = nullptr);
    ~CudaStream() override;

    Gpu& gpu() const { return gpu_; }
    // `parameters` are packed as the kernel has them.
    void launch(const LoadedKernel& kernel, const LaunchSize& size, const void* parameters,
                size_t bytes);
    // Queues work of the host. Its error is a failure of the stream. It must not call the driver. A
    // graph that repeats work regards it as different each time.
    void call(std::function<void()> work);
    // Asks libraries for facts that need a handle. Queues nothing.
    void ask_libraries(const std::function<void(LibraryStream&)>& ask);
    // Queues the work that a library's call queues.
    void run_library(const Product* product, std::span<const Address> inputs,
                     std::span<const Address> outputs, Address workspace,
                     const std::function<void(LibraryStream&)>& queue);
    // Lets `queue`, which may wait, queue work without a lock of ours: work of other threads may
    // come between. The work belongs to no graph.
    void run_by(const std::function<void(StreamHandle)>& queue);
    // Marks what was queued from `first` on as failed; the error is reported as other failures are.
    void lose(Ticket first, const std::exception_ptr& error);
    // The address at which the next kernel to be launched writes a Fault, in memory of the host
    // that the GPU sees; `tell` is asked when that kernel has run.
    Address fault_of_next(Tell tell);
    void clear(Address address, size_t bytes);
    // Queues a write of one byte to `to`: not 0 if work before it has failed and the failure is not
    // yet reported.
    void tell_failure(void* to);
    // Memory that all kernels of this stream use in turn; the first `zeros` bytes are 0 before each
    // kernel, and each leaves them so. Another thread may ask for more before the kernel is queued:
    // memory once given stays as long as the stream.
    struct Scratch {
        Address zeros = 0, rest = 0;
    };
    Scratch scratch(size_t zeros, size_t rest);
    void wait_until_idle() noexcept;
    // Counts what `queue` queues on a GPU that is only described. Nothing else may queue meanwhile.
    runtime::Queued count(const std::function<void()>& queue);

    Ticket record() override;
    void synchronize(Ticket ticket) override;
    bool is_past(Ticket ticket) override;
    void wait(runtime::Stream& other, Ticket ticket) override;
    std::exception_ptr loss(Ticket ticket) override;
    void copy(void* to, const void* from, size_t bytes) override;
    void upload(void* to, const void* from, size_t bytes, bool stays) override;
    void download(void* to, const void* from, size_t bytes) override;
    bool copy_across(void* to, runtime::Stream& source, Ticket ready, const void* from,
                     size_t bytes) override;
    uintptr_t native() override;
    void wait_for_native(uintptr_t other) override;
    void let_native_wait(uintptr_t other, Ticket ticket) override;
    void follow(uintptr_t other) override;
    bool is_recorded() const override;
    void report() override;
    void name_next(std::string_view op, const std::string& where) override;
    Ticket record_time() override;
    double seconds_between(Ticket begin, Ticket end) const override;
    bool stops_at_failure() const override { return false; }
    // Makes a CUDA graph the second time. In later runs its kernels get other operands where these
    // changed.
    void repeat(std::unique_ptr<Kept>& kept, const std::function<void()>& queue) override;

private:
    // The op and the user's line behind queued work, for errors. Kept until the work has run.
    struct Work {
        Ticket ticket = 0;
        std::string op = {}, where = {};
        int fault = -1;  // place in faults_
        Tell tell = {};
        bool is_of_graph = false;  // a graph owns the place of the fault
    };
    static thread_local Work next;  // how this thread names what it queues next
    struct Marker {
        Ticket ticket = 0;
        Event event = nullptr;
    };
    // Work that failed, and what was queued until the failure was reported.
    struct Lost {
        Ticket first = 0, last = 0;
        std::exception_ptr error;
    };
    // Distinguishes one piece of queued work from another: calls of the driver by name and
    // arguments, launches by function, size and parameters.
    struct Piece {
        const char* call = nullptr;
        Function function = nullptr;
        LaunchSize size = {};
        std::span<const std::byte> arguments = {};
        size_t moved_bytes = 0;  // bytes read and written by a call that only moves bytes
        bool is_repeatable = false;  // does the same whenever it runs, reading what is there then
    };
    // A host function that was queued.
    struct Task {
        CudaStream& stream;
        std::function<void()> work;
        Work name;
        std::atomic<Ticket> ticket;
        std::shared_ptr<Task> own = {};  // until it has run, unless a graph keeps it
        void run();
    };
    class Graph;
    static constexpr int kRelaxedCapture = 2;  // a number of the driver's interface
    // Lets this thread make calls that may wait, which a library forbids while it captures.
    class Relaxed {
    public:
        explicit Relaxed(const CudaDriver& driver);
        Relaxed(const Relaxed&) = delete;
        Relaxed& operator=(const Relaxed&) = delete;
        ~Relaxed();

    private:
        const CudaDriver& driver_;
        int mode_ = kRelaxedCapture;
    };

    static constexpr const char* kUpload = "cuMemcpyHtoDAsync";

    Entered enter() const;
    // These need mutex_.
    // Calls `queue`, which calls the driver; or leaves it to the graph that is being made.
    template <class Queue>
    void queue(const Piece& piece, const Queue& queue);
    void count(const Piece& piece);
    Ticket note(Work work);
    void list(Work work);
    bool wait_to_send(void* to, const void* from, size_t bytes);
    Result send_waiting();
    void send() { check(send_waiting(), kUpload); }
    Event event_at(Ticket ticket);
    Event event_of_sent(Ticket ticket);
    Event spare_event();
    void await(Ticket ticket);
    void retire(Ticket ticket);
    LibraryStream& libraries();
    void queue_on(StreamHandle handle);
    const std::byte* stage(const std::byte* from, size_t bytes);
    void add_faults();
    int take_fault();
    Fault& fault_at(int place);
    void refuse_dead() const;
    // Throws the driver's error, whichever call reports it first: events are recorded after work
    // that may have failed by then. After a fatal error nothing works any more.
    void check(Result result, const char* call);
    void check_idle(Result result, const char* call);
    bool is_captured(StreamHandle stream);
    // Throws UserError for work that a library's graph cannot repeat.
    void refuse_unrecordable(const Piece& piece) const;
    void record_again(bool has_run, const std::function<void()>& queue);
    void report_recorded();
    void clear_flag();
    void fail(const Work& work, const std::exception_ptr& error);
    const Lost* range_of(Ticket ticket) const;
    Fault no_fault() const { return {.has_failed = reinterpret_cast<Address>(flag_)}; }

    Gpu& gpu_;
    std::string device_;
    runtime::Allocator* const memory_;
    mutable std::once_flag made_;
    // Where work is queued: on the stream's own, unless it follows another one. Graphs are captured
    // on the own one, for the default stream of a library cannot be captured.
    mutable StreamHandle own_ = nullptr, handle_ = nullptr;
    // While a library captures its stream, which is handle_ then: where work is queued otherwise.
    StreamHandle outside_ = nullptr;
    bool is_repeating_ = false;  // what is queued has run before
    std::vector<Work> recorded_;  // checks of values in the library's graphs
    using Lock = std::unique_lock<std::recursive_mutex>;
    Lock locked() const;
    mutable std::recursive_mutex mutex_;  // also held while a graph is made of queued work
    uint64_t calls_ = 0;
    Graph* graph_ = nullptr;  // the graph that is being made, or compared with
    runtime::Queued* counted_ = nullptr;  // where queued work is counted
    std::atomic<Ticket> queued_ = 0;  // also read without the lock, even in a child of fork()
    Ticket done_ = 0, marked_ = 0;  // up to where work has run; up to where it had its last mark
    std::deque<Work> works_;  // work not yet retired
    std::deque<Marker> markers_;
    std::vector<Event> spare_events_;
    std::map<Ticket, Event> times_;
    std::vector<Fault*> fault_blocks_;  // pinned: the GPU writes here
    std::vector<int> free_faults_;  // free places in these blocks
    mutable int32_t* flag_ = nullptr;  // pinned, too; not 0: a failure is not yet reported
    // A ring of pinned memory, from which uploads are read.
    struct Staged {
        size_t begin = 0, end = 0;
        Ticket ticket = 0;  // ticket of the upload that reads it
    };
    std::byte* staging_ = nullptr;
    std::deque<Staged> staged_;  // oldest first
    // An upload that was asked for and is not sent yet.
    struct Waiting {
        Ticket ticket = 0;
        void* to = nullptr;
        std::vector<std::byte> data;
    };
    std::deque<Waiting> waiting_;
    std::unique_ptr<LibraryStream> libraries_;  // made at the first use
    std::exception_ptr dead_;  // why the GPU does no more work
    struct Shared {
        // The last block is in use; each is at least twice the one before.
        std::vector<std::pair<Address, size_t>> blocks;
        size_t zeros = 0, rest = 0;
    } scratch_, recorded_scratch_;
    mutable std::mutex lost_mutex_;  // guards the two below; the driver's thread takes only it
    std::vector<Lost> lost_;
    bool has_failed_ = false;  // a failure is not yet reported
};

}  // namespace megjit::cuda
