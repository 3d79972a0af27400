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

// What a kernel that checks values writes where one is wrong: kind 0 is right. It sets the stream's
// flag, too.
struct Fault {
    int32_t kind = 0;
    int32_t axis = 0;
    int64_t value = 0;
    Address has_failed = 0;
};
// Throws the error that the fault means.
using Tell = std::function<void(const Fault&)>;

// Tickets count what was queued; every sixteenth, and every one that another stream waits for, has
// an event.
class CudaStream final : public runtime::Stream {
public:
    using Ticket = runtime::Ticket;

    CudaStream(Gpu& gpu, std::string device);
    ~CudaStream() override;

    Gpu& gpu() const { return gpu_; }
    // `parameters`: packed, as the kernel has them.
    void launch(const LoadedKernel& kernel, const LaunchSize& size, const void* parameters,
                size_t bytes);
    // Work of the host, between what was queued before and after. What it throws is a failure of
    // the stream. It must not call the driver. To a graph that repeats it, it is never the same.
    void call(std::function<void()> work);
    // Asks libraries for what they tell the holder of a handle alone. Queues nothing.
    void ask_libraries(const std::function<void(LibraryStream&)>& ask);
    // What a library queues by itself.
    void run_library(const Product* product, std::span<const Address> inputs,
                     std::span<const Address> outputs, Address workspace,
                     const std::function<void(LibraryStream&)>& queue);
    // Queues by a function that may wait, and so without a lock of ours: work of other threads may
    // come between. The work belongs to no graph.
    void run_by(const std::function<void(StreamHandle)>& queue);
    // What was queued from `first` on has failed; told as other failures are.
    void lose(Ticket first, const std::exception_ptr& error);
    // Where the kernel that is launched next writes a Fault, in memory of the host that the GPU
    // sees; `tell` is asked when that kernel has run.
    Address fault_of_next(Tell tell);
    void clear(Address address, size_t bytes);
    // Queues one byte to `to`: not 0 where work before it has failed and nobody was told.
    void tell_failure(void* to);
    // Memory of all kernels of this stream, one after the other; the first `zeros` bytes are 0
    // before each, which leaves them so. Another thread may ask for more before the kernel is
    // queued: what was given stays as long as the stream.
    struct Scratch {
        Address zeros = 0, rest = 0;
    };
    Scratch scratch(size_t zeros, size_t rest);
    void wait_until_idle() noexcept;
    // What `queue` queues, of a GPU that is only described. Nothing else queues meanwhile.
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
    void name_next(std::string_view op, const std::string& where) override;
    Ticket record_time() override;
    double seconds_between(Ticket begin, Ticket end) const override;
    bool stops_at_failure() const override { return false; }
    // As a CUDA graph from the second time on, whose kernels get other operands where they changed.
    void repeat(std::unique_ptr<Kept>& kept, const std::function<void()>& queue) override;

private:
    // What queued work was for. Kept until it has run.
    struct Work {
        Ticket ticket = 0;
        std::string op = {}, where = {};
        int fault = -1;  // of faults_
        Tell tell = {};
        bool is_of_graph = false;  // which keeps the place of the fault
    };
    static thread_local Work next;  // what this thread says of what it queues next
    struct Marker {
        Ticket ticket = 0;
        Event event = nullptr;
    };
    // Work that failed, and what was queued until somebody was told.
    struct Lost {
        Ticket first = 0, last = 0;
        std::exception_ptr error;
    };
    // What tells one piece of queued work from another: calls of the driver by name and arguments,
    // launches by function, size and parameters.
    struct Piece {
        const char* call = nullptr;
        Function function = nullptr;
        LaunchSize size = {};
        std::span<const std::byte> arguments = {};
        size_t moved_bytes = 0;  // read and written, where the driver does no more than that
    };
    // A host function that was queued.
    struct Task {
        CudaStream& stream;
        std::function<void()> work;
        Work name;
        std::atomic<Ticket> ticket;
        std::shared_ptr<Task> own = {};  // until it has run, where no graph keeps it
        void run();
    };
    class Graph;

    Entered enter() const;
    // With mutex_:
    // Queues by `queue`, which calls the driver; or leaves it to the graph that is being made.
    template <class Queue>
    void queue(const Piece& piece, const Queue& queue);
    void count(const Piece& piece);
    Ticket note(Work work);
    Event event_at(Ticket ticket);
    Event spare_event();
    void await(Ticket ticket);
    void retire(Ticket ticket);
    LibraryStream& libraries();
    const std::byte* stage(const std::byte* from, size_t bytes);
    void add_faults();
    int take_fault();
    Fault& fault_at(int place);
    void refuse_dead() const;
    // Throws what the driver says, whichever call tells of it first: events are recorded behind
    // work that may have failed by then. After a fatal result nothing works any more.
    void check(Result result, const char* call);
    void check_idle(Result result, const char* call);
    void fail(const Work& work, const std::exception_ptr& error);
    const Lost* range_of(Ticket ticket) const;
    Fault no_fault() const { return {.has_failed = reinterpret_cast<Address>(flag_)}; }

    Gpu& gpu_;
    std::string device_;
    mutable std::once_flag made_;
    mutable StreamHandle handle_ = nullptr;
    using Lock = std::unique_lock<std::recursive_mutex>;
    Lock locked() const;
    mutable std::recursive_mutex mutex_;  // held while a graph is made of what is queued
    uint64_t calls_ = 0;
    Graph* graph_ = nullptr;  // that is being made, or compared with
    runtime::Queued* counted_ = nullptr;  // that takes what is queued
    std::atomic<Ticket> queued_ = 0;  // also read without the lock, in a child of fork() too
    Ticket done_ = 0;
    std::deque<Work> works_;  // not retired yet
    std::deque<Marker> markers_;
    std::vector<Event> spare_events_;
    std::map<Ticket, Event> times_;
    std::vector<Fault*> fault_blocks_;  // pinned: the GPU writes here
    std::vector<int> free_faults_;  // places in them
    mutable int32_t* flag_ = nullptr;  // pinned, too: work has failed, and nobody was told
    // A ring of pinned memory, from which uploads are read.
    struct Staged {
        size_t begin = 0, end = 0;
        Ticket ticket = 0;  // of the upload that reads it
    };
    std::byte* staging_ = nullptr;
    std::deque<Staged> staged_;  // oldest first
    std::unique_ptr<LibraryStream> libraries_;  // made at the first use
    std::exception_ptr dead_;  // the GPU does no more work
    std::vector<Address> scratches_;  // the last one is in use; each at least twice the one before
    size_t scratch_zeros_ = 0, scratch_rest_ = 0;
    mutable std::mutex lost_mutex_;  // of the two below; the driver's thread takes it, no other one
    std::vector<Lost> lost_;
    bool has_failed_ = false;  // and nobody was told
};

}  // namespace megjit::cuda
