// backends/cuda/stream_graph.h -- what CudaStream::repeat keeps: CUDA graphs, and the work that
// they were made of.
#pragma once

#include <list>

#include "backends/cuda/cuda_stream.h"

namespace megjit::cuda {

// A graph repeats work of a stream. Work that is the same as before costs one launch; the same
// kernels on other operands cost one call of the driver for each kernel that changed. Other work (a
// library's call or a copy at other addresses, say) becomes a graph of its own, of which some are
// kept: a step whose results alternate between places finds the graph for these. Work that is
// different each time is queued piece by piece.
class CudaStream::Graph final : public runtime::Stream::Kept {
public:
    explicit Graph(CudaStream& stream) : stream_(stream) {}
    ~Graph() override;

    // All functions need the stream's mutex.
    void run(const std::function<void()>& queue);
    // While `queue` runs: adds the next piece of work.
    void add(const Piece& piece, Work work, const std::function<Result()>& queue);
    // The place where the next kernel that checks values writes its faults: each run has the same
    // places, in their order.
    int next_fault();
    // While work is captured: keeps the task of a host function as long as the graph that calls it.
    void keep(std::shared_ptr<Task> task) { captured_.tasks.push_back(std::move(task)); }

private:
    struct Item {
        Piece piece() const;
        void take(const Piece& from, Work of);
        const char* call = nullptr;
        Function function = nullptr;
        LaunchSize size = {};
        std::vector<std::byte> arguments;
        Work work;
    };
    struct Made {
        std::vector<Item> items;  // the work as it was launched last
        std::vector<GraphNode> nodes;  // nodes of `graph`, by item; only for kernels
        std::vector<std::shared_ptr<Task>> tasks;
        GraphHandle graph = nullptr;
        GraphExec exec = nullptr;
    };
    void look(const std::function<void()>& queue);
    bool fits(const Made& made) const;
    bool update(Made& made);
    bool set_kernel(const Made& made, size_t at);
    bool capture(const std::function<void()>& queue);
    void launch(Made& made);
    void destroy(Made& made);

    CudaStream& stream_;
    std::list<Made> made_;  // most recently launched first
    std::vector<int> faults_;  // places that all runs use
    int captures_ = 0;  // captures since a graph was launched again
    int left_alone_ = 0;  // runs since then that were queued piece by piece
    // These hold while work is looked at or captured:
    bool is_looking_ = false;
    size_t count_ = 0, asked_ = 0;
    std::vector<Item> seen_;  // the first count_ items are valid
    Made captured_;
};

}  // namespace megjit::cuda
