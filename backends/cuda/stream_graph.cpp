#include "backends/cuda/stream_graph.h"

#include <algorithm>
#include <utility>

#include "runtime/host/error.h"

namespace megjit::cuda {
namespace {

// Numbers of the driver's interface.
constexpr int kRelaxedCapture = 2;  // other threads, and the allocator, may call the driver

}  // namespace

void CudaStream::repeat(std::unique_ptr<Kept>& kept, const std::function<void()>& queue) {
    enter();
    const Lock lock = locked();
    if (kept) return static_cast<Graph&>(*kept).run(queue);
    queue();  // the first time: what is only made once is no part of a graph
    kept = std::make_unique<Graph>(*this);
}

CudaStream::Graph::~Graph() {
    const Ticket last = stream_.record();  // others may queue more while this waits
    stream_.wait_until_idle();
    try {
        const Lock lock = stream_.locked();
        stream_.enter();
        stream_.retire(last);
        release_faults();
        const Functions& call = stream_.gpu_.driver().call();
        if (exec_) call.destroy_exec(exec_);
        if (graph_) call.destroy_graph(graph_);
    } catch (const runtime::DeviceError&) {}  // a child of fork() leaves it to the parent
}

void CudaStream::Graph::release_faults() {
    for (const Item& item : items_)
        if (item.work.fault >= 0) stream_.free_faults_.push_back(item.work.fault);
    items_.clear();
}

void CudaStream::Graph::run(const std::function<void()>& queue) {
    if (!exec_ || !compare(queue)) capture(queue);
    if (exec_) launch();
}

// ---- what is queued

bool CudaStream::Graph::equal(const Piece& a, const Piece& b) {
    return a.call == b.call && a.function == b.function && a.size == b.size &&
           std::ranges::equal(a.arguments, b.arguments);
}

int CudaStream::Graph::known_fault() const {
    return is_compared_ && is_same_ && next_ < items_.size() ? items_[next_].work.fault : -1;
}

void CudaStream::Graph::add(const Piece& piece, Work work, const std::function<Result()>& queue) {
    if (is_compared_) {
        Item* known = is_same_ && next_ < items_.size() ? &items_[next_] : nullptr;
        const bool is_kernel = known && known->piece.function && piece.function;
        const bool is_equal = known && equal(known->piece, piece);
        is_same_ = known && (is_equal || is_kernel) && known->work.fault == work.fault;
        if (!is_same_) {
            if (work.fault >= 0 && !(known && known->work.fault == work.fault))
                stream_.free_faults_.push_back(work.fault);
            return;
        }
        if (!is_equal) {
            set_kernel(nodes_[next_], piece);
            known->take(piece);
        }
        ++next_;
        return;
    }
    const CudaDriver& driver = stream_.gpu_.driver();
    driver.check(queue(), piece.call);
    int status = 0;
    uint64_t id = 0;
    const GraphNode* last = nullptr;
    size_t count = 0;
    driver.check(driver.call().capture_info(stream_.handle_, &status, &id, nullptr, &last, &count),
                 "cuStreamGetCaptureInfo");
    captured_.push_back(count == 1 ? *last : nullptr);
    work.is_of_graph = true;
    items_.emplace_back(piece, std::move(work));
}

void CudaStream::Graph::set_kernel(GraphNode node, const Piece& piece) {
    std::vector<std::byte> arguments(piece.arguments.begin(), piece.arguments.end());
    size_t bytes = arguments.size();
    void* extra[] = {kParameterBuffer, arguments.data(), kParameterBytes, &bytes, kParameterEnd};
    KernelNode parameters{.function = piece.function, .extra = extra};
    std::copy(piece.size.grid, piece.size.grid + 3, parameters.grid);
    std::copy(piece.size.block, piece.size.block + 3, parameters.block);
    parameters.shared_bytes = piece.size.shared_bytes;
    const CudaDriver& driver = stream_.gpu_.driver();
    is_same_ = driver.call().set_kernel_node(exec_, node, &parameters) == 0;  // or captured again
}

// Is it the same work, but for operands?
bool CudaStream::Graph::compare(const std::function<void()>& queue) {
    is_compared_ = is_same_ = true;
    next_ = 0;
    stream_.graph_ = this;
    struct End {
        Graph& graph;
        ~End() {
            graph.is_compared_ = false;
            graph.stream_.graph_ = nullptr;
        }
    } const end{*this};
    queue();
    return is_same_ && next_ == items_.size();
}

void CudaStream::Graph::capture(const std::function<void()>& queue) {
    const CudaDriver& driver = stream_.gpu_.driver();
    stream_.wait_until_idle();  // what it had may run still, and write its faults
    stream_.retire(stream_.queued_);
    release_faults();
    captured_.clear();
    driver.check(driver.call().begin_capture(stream_.handle_, kRelaxedCapture),
                 "cuStreamBeginCapture");
    GraphHandle graph = nullptr;
    stream_.graph_ = this;
    try {
        queue();
    } catch (...) {
        stream_.graph_ = nullptr;
        if (driver.call().end_capture(stream_.handle_, &graph) == 0)
            driver.call().destroy_graph(graph);
        release_faults();
        throw;
    }
    stream_.graph_ = nullptr;
    driver.check(driver.call().end_capture(stream_.handle_, &graph), "cuStreamEndCapture");
    instantiate(graph, std::move(captured_));
}

// Into what there is where the driver can, so that its nodes stay.
void CudaStream::Graph::instantiate(GraphHandle graph, std::vector<GraphNode> nodes) {
    const CudaDriver& driver = stream_.gpu_.driver();
    const Functions& call = driver.call();
    GraphUpdate update;
    if (exec_ && nodes.size() == nodes_.size() && call.update_graph(exec_, graph, &update) == 0) {
        call.destroy_graph(graph);
        return;
    }
    if (exec_) call.destroy_exec(std::exchange(exec_, nullptr));
    if (graph_) call.destroy_graph(graph_);
    graph_ = graph;
    nodes_ = std::move(nodes);
    driver.check(call.instantiate(&exec_, graph_, 0), "cuGraphInstantiate");
}

void CudaStream::Graph::launch() {
    const CudaDriver& driver = stream_.gpu_.driver();
    const Result result = driver.call().launch_graph(exec_, stream_.handle_);
    stream_.check(result, "cuGraphLaunch");
    Work whole{.op = runtime::cat("a graph of ", items_.size(), " steps")};
    if (!items_.empty()) whole.where = items_[0].work.where;
    stream_.note(std::move(whole));
    for (const Item& item : items_)
        if (item.work.fault >= 0) stream_.note(item.work);
}

}  // namespace megjit::cuda
