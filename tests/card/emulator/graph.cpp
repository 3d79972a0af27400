#include "tests/card/emulator/graph.h"

#include <algorithm>
#include <random>

#include "tests/card/emulator/works.h"

namespace megjit::card {
namespace {

std::mutex capture_mutex;
std::set<Capture*>& captures() {
    static auto& all = *new std::set<Capture*>;
    return all;
}
thread_local CaptureMode thread_mode = CaptureMode::global;

class GraphWork : public Work {
public:
    explicit GraphWork(std::vector<GraphExec::Step> steps) : steps_(std::move(steps)) {}

    // In a random order that keeps what each node waits for; the time is that of the longest path.
    double run(Card& card) override {
        static std::atomic<unsigned> seed{1};
        std::minstd_rand random(seed++);
        std::vector<size_t> waits(steps_.size()), ready;
        std::vector<std::vector<size_t>> next(steps_.size());
        std::vector<double> end(steps_.size());
        for (size_t i = 0; i < steps_.size(); ++i) {
            waits[i] = steps_[i].after.size();
            if (waits[i] == 0) ready.push_back(i);
            for (const size_t before : steps_[i].after) next[before].push_back(i);
        }
        double last = 0;
        while (!ready.empty()) {
            std::swap(ready[random() % ready.size()], ready.back());
            const size_t step = ready.back();
            ready.pop_back();
            double start = 0;
            for (const size_t before : steps_[step].after) start = std::max(start, end[before]);
            end[step] = start;
            if (steps_[step].work) end[step] += steps_[step].work->run(card);
            last = std::max(last, end[step]);
            for (const size_t after : next[step])
                if (--waits[after] == 0) ready.push_back(after);
        }
        return last;
    }

private:
    std::vector<GraphExec::Step> steps_;
};

std::vector<GraphExec::Step> steps_of(const Graph& graph) {
    std::vector<GraphExec::Step> steps;
    for (const auto& node : graph.nodes()) {
        GraphExec::Step& step = steps.emplace_back();
        step.work = node->work;
        for (const Node* before : node->after) step.after.push_back(before->index);
    }
    return steps;
}

}  // namespace

NodeType type_of(const Work* work) {
    if (dynamic_cast<const KernelWork*>(work) || dynamic_cast<const LibraryWork*>(work))
        return NodeType::kernel;
    if (dynamic_cast<const CopyWork*>(work)) return NodeType::copy;
    if (dynamic_cast<const FillWork*>(work)) return NodeType::fill;
    if (dynamic_cast<const HostWork*>(work)) return NodeType::host;
    return NodeType::empty;
}

Graph::~Graph() {
    for (const auto& node : nodes_) forget(node.get());
}

Node* Graph::add(std::shared_ptr<Work> work, std::vector<Node*> after) {
    nodes_.emplace_back(new Node{std::move(work), std::move(after), nodes_.size()});
    remember(nodes_.back().get(), Kind::node);
    return nodes_.back().get();
}

GraphExec::GraphExec(const Graph& graph) : steps_(steps_of(graph)) {
    for (const auto& node : graph.nodes()) index_[node.get()] = node->index;
}

std::shared_ptr<Work> GraphExec::launch() const { return std::make_shared<GraphWork>(steps_); }

void GraphExec::update(const Graph& graph, int& why, Node*& bad) {
    constexpr int kTopology = 2, kType = 3;
    const auto refuse = [&](int reason, Node* node, const char* text) {
        why = reason;
        bad = node;
        throw Fault(Result::graph_update_failure, text);
    };
    std::vector<Step> steps = steps_of(graph);
    if (steps.size() != steps_.size())
        refuse(kTopology, nullptr, "the graph has another number of nodes");
    for (size_t i = 0; i < steps.size(); ++i) {
        Node* node = graph.nodes()[i].get();
        if (type_of(steps[i].work.get()) != type_of(steps_[i].work.get()))
            refuse(kType, node, "a node has another type");
        if (steps[i].after != steps_[i].after)
            refuse(kTopology, node, "a node waits for other nodes");
    }
    steps_ = std::move(steps);
    for (const auto& node : graph.nodes()) index_[node.get()] = node->index;
}

void GraphExec::replace(const Node* node, std::shared_ptr<Work> work) {
    const auto it = index_.find(node);
    if (it == index_.end())
        throw Fault(Result::invalid_value, "the node is of another graph than the executable");
    Step& step = steps_[it->second];
    if (type_of(step.work.get()) != type_of(work.get()))
        throw Fault(Result::invalid_value, "the node has another type than the new parameters");
    step.work = std::move(work);
}

Capture::Capture(Stream& origin, CaptureMode mode) : origin(&origin), mode(mode) {
    static std::atomic<uint64_t> serial{1};
    id = serial++;
    const std::lock_guard lock(capture_mutex);
    captures().insert(this);
    streams.insert(&origin);
}

void Capture::end() {
    for (Stream* member : streams) {
        member->capture.reset();
        member->frontier.clear();
    }
    ended = true;
    const std::lock_guard lock(capture_mutex);
    captures().erase(this);
}

CaptureMode exchange_capture_mode(CaptureMode mode) { return std::exchange(thread_mode, mode); }

// As cuThreadExchangeStreamCaptureMode says: a thread in global mode must not make such calls while
// anyone captures in global mode; none may while it captures itself in a mode that is not relaxed.
void check_not_capturing(const char* call) {
    if (in_host_function())
        throw Fault(Result::not_permitted, std::string(call) + " in a host function of a stream");
    const std::lock_guard lock(capture_mutex);
    for (Capture* capture : captures()) {
        if (capture->mode == CaptureMode::relaxed || thread_mode == CaptureMode::relaxed) continue;
        const bool own = capture->thread == std::this_thread::get_id();
        if (!own && (capture->mode != CaptureMode::global || thread_mode != CaptureMode::global))
            continue;
        capture->invalidated = true;
        throw Fault(Result::capture_unsupported,
                    std::string(call) + " is not allowed while a stream is being captured");
    }
}

void check_stream_for_work(Stream& stream) {
    if (in_host_function())
        throw Fault(Result::not_permitted, "a host function of a stream calls the driver");
    if (stream.capture) {
        if (stream.capture->invalidated)
            throw Fault(Result::capture_invalidated, "the stream's capture was invalidated");
        return;
    }
    if (&stream != &stream.card.legacy()) return;
    const std::lock_guard lock(capture_mutex);
    for (Capture* capture : captures())
        for (const Stream* captured : capture->streams)
            if (captured->blocking && &captured->card == &stream.card) {
                capture->invalidated = true;
                throw Fault(Result::capture_implicit,
                            "work on stream 0 would wait for a stream that is being captured; "
                            "create streams with CU_STREAM_NON_BLOCKING, or use another stream");
            }
}

void submit(Stream& stream, std::shared_ptr<Work> work) {
    check_stream_for_work(stream);
    if (!stream.capture) {
        stream.card.queue(stream, std::move(work));
        return;
    }
    stream.frontier = {stream.capture->graph->add(std::move(work), stream.frontier)};
}

std::unique_ptr<Graph> end_capture(Stream& stream) {
    if (!stream.capture) throw Fault(Result::illegal_state, "the stream is not being captured");
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture->origin != &stream)
        throw Fault(Result::capture_unmatched, "the capture began in another stream");
    if (capture->mode != CaptureMode::relaxed && capture->thread != std::this_thread::get_id())
        throw Fault(Result::capture_wrong_thread, "the capture began in another thread");
    // Every node must come before what the origin has last.
    std::set<const Node*> joined;
    std::vector<const Node*> open(stream.frontier.begin(), stream.frontier.end());
    while (!open.empty()) {
        const Node* node = open.back();
        open.pop_back();
        if (joined.insert(node).second)
            open.insert(open.end(), node->after.begin(), node->after.end());
    }
    capture->end();
    if (capture->invalidated)
        throw Fault(Result::capture_invalidated,
                    "the capture was invalidated by a call that is not allowed in it");
    if (joined.size() != capture->graph->nodes().size())
        throw Fault(Result::capture_unjoined,
                    "another stream's work was captured but never waited for by the stream that "
                    "began the capture: record an event there and let it wait");
    return std::move(capture->graph);
}

}  // namespace megjit::card
