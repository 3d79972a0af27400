#include "backends/cuda/stream_graph.h"

#include <algorithm>
#include <utility>

#include "runtime/host/error.h"

namespace megjit::cuda {
namespace {

constexpr size_t kMostGraphs = 4;
constexpr int kMostCaptures = 8;  // captures without a reuse; then work is left alone for some runs
constexpr int kRunsLeftAlone = 64;

}  // namespace

void CudaStream::repeat(std::unique_ptr<Kept>& kept, const std::function<void()>& queue) {
    const Entered entered = enter();
    const Lock lock = locked();
    if (outside_) return record_again(kept != nullptr, queue);
    send();
    if (kept) return static_cast<Graph&>(*kept).run(queue);
    queue();  // the first time: things that are only made once must not be in a graph
    kept = std::make_unique<Graph>(*this);
}

// The library's graph takes the work as it would take the library's own. What memory the work
// shares goes back to the library, which gives it to what it captures next.
void CudaStream::record_again(bool has_run, const std::function<void()>& queue) {
    const Relaxed relaxed(gpu_.driver());
    struct End {
        CudaStream& stream;
        ~End() {
            stream.is_repeating_ = false;
            for (const auto& [memory, bytes] : stream.recorded_scratch_.blocks)
                stream.memory_->release(reinterpret_cast<void*>(memory), bytes);
            stream.recorded_scratch_ = {};
        }
    } const end{*this};
    is_repeating_ = has_run;
    queue();
}

CudaStream::Graph::~Graph() {
    const Ticket last = stream_.record();  // other threads may queue more meanwhile
    stream_.wait_until_idle();
    try {
        const Lock lock = stream_.locked();
        const Entered entered = stream_.enter();
        stream_.retire(last);
        stream_.free_faults_.insert(stream_.free_faults_.end(), faults_.begin(), faults_.end());
        for (Made& made : made_) destroy(made);
    } catch (const runtime::DeviceError&) {}  // a child of fork() leaves it to the parent
}

void CudaStream::Graph::destroy(Made& made) {
    const Functions& call = stream_.gpu_.driver().call();
    if (made.exec) call.destroy_exec(made.exec);
    if (made.graph) call.destroy_graph(made.graph);
}

void CudaStream::Graph::run(const std::function<void()>& queue) {
    if (captures_ >= kMostCaptures) {
        if (++left_alone_ <= kRunsLeftAlone) return queue();
        captures_ = left_alone_ = 0;
    }
    look(queue);
    const auto made =
        std::ranges::find_if(made_, [this](const Made& known) { return fits(known); });
    if (made != made_.end() && update(*made)) {
        captures_ = 0;
        made_.splice(made_.begin(), made_, made);
        return launch(*made);
    }
    ++captures_;
    if (capture(queue)) return launch(made_.front());
    captures_ = kMostCaptures;
    queue();
}

// ---- what is queued

CudaStream::Piece CudaStream::Graph::Item::piece() const {
    return {.call = call, .function = function, .size = size, .arguments = arguments};
}

void CudaStream::Graph::Item::take(const Piece& from, Work of) {
    call = from.call;
    function = from.function;
    size = from.size;
    arguments.assign(from.arguments.begin(), from.arguments.end());
    work = std::move(of);
}

int CudaStream::Graph::next_fault() {
    if (asked_ == faults_.size()) faults_.push_back(stream_.take_fault());
    return faults_[asked_++];
}

void CudaStream::Graph::add(const Piece& piece, Work work, const std::function<Result()>& queue) {
    work.is_of_graph = true;
    if (is_looking_) {
        if (count_ == seen_.size()) seen_.emplace_back();
        return seen_[count_++].take(piece, std::move(work));
    }
    const CudaDriver& driver = stream_.gpu_.driver();
    driver.check(queue(), piece.call);
    GraphNode node = nullptr;
    if (piece.function) {  // capture_info may fail for what libraries leave after their work
        int status = 0;
        uint64_t id = 0;
        const GraphNode* last = nullptr;
        size_t count = 0;
        driver.check(
            driver.call().capture_info(stream_.handle_, &status, &id, nullptr, &last, &count),
            "cuStreamGetCaptureInfo");
        if (count == 1) node = *last;
    }
    captured_.nodes.push_back(node);
    captured_.items.emplace_back().take(piece, std::move(work));
}

// Collects in seen_ what `queue` queues.
void CudaStream::Graph::look(const std::function<void()>& queue) {
    count_ = asked_ = 0;
    is_looking_ = true;
    stream_.graph_ = this;
    struct End {
        Graph& graph;
        ~End() {
            graph.is_looking_ = false;
            graph.stream_.graph_ = nullptr;
        }
    } const end{*this};
    queue();
}

// Is the work in seen_ the same, except for operands of kernels?
bool CudaStream::Graph::fits(const Made& made) const {
    const auto is_same = [](const Item& seen, const Item& known) {
        return seen.call == known.call && seen.function == known.function &&
               seen.size == known.size && seen.work.fault == known.work.fault &&
               (seen.function || seen.arguments == known.arguments);
    };
    return std::equal(seen_.begin(), seen_.begin() + static_cast<ptrdiff_t>(count_),
                      made.items.begin(), made.items.end(), is_same);
}

// Gives the kernels the operands in seen_. If the driver refuses one, only some kernels get theirs.
bool CudaStream::Graph::update(Made& made) {
    for (size_t i = 0; i < made.items.size(); ++i) {
        if (seen_[i].arguments == made.items[i].arguments) continue;
        if (!set_kernel(made, i)) return false;
        made.items[i].arguments.swap(seen_[i].arguments);
    }
    return true;
}

bool CudaStream::Graph::set_kernel(const Made& made, size_t at) {
    const Item& item = seen_[at];
    std::vector<std::byte> arguments = item.arguments;
    size_t bytes = arguments.size();
    void* extra[] = {kParameterBuffer, arguments.data(), kParameterBytes, &bytes, kParameterEnd};
    KernelNode parameters{.function = item.function, .extra = extra};
    std::copy(item.size.grid, item.size.grid + 3, parameters.grid);
    std::copy(item.size.block, item.size.block + 3, parameters.block);
    parameters.shared_bytes = item.size.shared_bytes;
    const Functions& call = stream_.gpu_.driver().call();
    return call.set_kernel_node(made.exec, made.nodes[at], &parameters) == 0;
}

// ---- graphs

// Makes a graph of what `queue` queues, and puts it first. Returns false where the driver makes
// none, for lack of memory.
bool CudaStream::Graph::capture(const std::function<void()>& queue) {
    const Functions& call = stream_.gpu_.driver().call();
    captured_ = {};
    asked_ = 0;
    if (call.begin_capture(stream_.own_, kRelaxedCapture) != 0) return false;
    const StreamHandle target = stream_.handle_;
    stream_.queue_on(stream_.own_);
    stream_.graph_ = this;
    const auto stop = [&] {
        stream_.graph_ = nullptr;
        stream_.queue_on(target);
        return call.end_capture(stream_.own_, &captured_.graph);
    };
    try {
        queue();
    } catch (...) {
        if (stop() == 0) destroy(captured_);
        throw;
    }
    stream_.check(stop(), "cuStreamEndCapture");
    if (call.instantiate(&captured_.exec, captured_.graph, 0) != 0) {
        destroy(captured_);
        return false;
    }
    if (made_.size() == kMostGraphs) {
        stream_.wait_until_idle();  // it may still run
        destroy(made_.back());
        made_.pop_back();
    }
    made_.push_front(std::move(captured_));
    return true;
}

void CudaStream::Graph::launch(Made& made) {
    const CudaDriver& driver = stream_.gpu_.driver();
    for (const std::shared_ptr<Task>& task : made.tasks) task->ticket = stream_.queued_ + 1;
    stream_.check(driver.call().launch_graph(made.exec, stream_.handle_), "cuGraphLaunch");
    Work whole{.op = runtime::cat("a graph of ", made.items.size(), " steps")};
    if (!made.items.empty()) whole.where = made.items[0].work.where;
    stream_.note(std::move(whole));
    for (const Item& item : made.items)
        if (item.work.fault >= 0) stream_.note(item.work);
}

}  // namespace megjit::cuda
