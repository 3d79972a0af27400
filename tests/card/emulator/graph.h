// tests/card/emulator/graph.h -- CUDA graphs: captured work, and its executable form.
#pragma once

#include <set>
#include <thread>

#include "tests/card/emulator/calls.h"

namespace megjit::card {

enum class NodeType : int { kernel = 0, copy = 1, fill = 2, host = 3, empty = 5 };

struct Node {
    std::shared_ptr<Work> work;  // null: empty
    std::vector<Node*> after;
    size_t index;
};
NodeType type_of(const Work* work);

class Graph {
public:
    ~Graph();
    Node* add(std::shared_ptr<Work> work, std::vector<Node*> after);
    const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }

private:
    std::vector<std::unique_ptr<Node>> nodes_;
};

// What can be launched. Nodes are known by the graph's handles, which may be gone.
class GraphExec {
public:
    explicit GraphExec(const Graph& graph);

    struct Step {
        std::shared_ptr<Work> work;
        std::vector<size_t> after;
    };
    std::shared_ptr<Work> launch() const;  // as the steps are now
    // Throws Fault graph_update_failure; `bad` is the graph's node that does not fit, or null.
    void update(const Graph& graph, int& why, Node*& bad);
    // Throws invalid_value where the node is not of this type.
    void replace(const Node* node, std::shared_ptr<Work> work);

private:
    std::vector<Step> steps_;
    std::map<const Node*, size_t> index_;
};

enum class CaptureMode : int { global = 0, thread_local_ = 1, relaxed = 2 };

class Capture {
public:
    Capture(Stream& origin, CaptureMode mode);
    void end();

    Stream* origin;
    CaptureMode mode;
    std::thread::id thread = std::this_thread::get_id();
    uint64_t id;
    bool invalidated = false;
    bool ended = false;  // events may know it still
    std::unique_ptr<Graph> graph = std::make_unique<Graph>();
    std::set<Stream*> streams;
};

// Ends the capture and leaves every stream; throws Fault.
std::unique_ptr<Graph> end_capture(Stream& stream);
// Throws where the stream's capture was invalidated, or the legacy stream would wait for one.
void check_stream_for_work(Stream& stream);
CaptureMode exchange_capture_mode(CaptureMode mode);

}  // namespace megjit::card
