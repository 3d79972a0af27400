// backends/cuda/stream_graph.h -- what CudaStream::repeat keeps: a CUDA graph, and what it was made
// of.
#pragma once

#include "backends/cuda/cuda_stream.h"

namespace megjit::cuda {

// The same work as before costs one launch; the same kernels on other operands cost one call of the
// driver for each that changed; other work is captured again.
class CudaStream::Graph final : public runtime::Stream::Kept {
public:
    explicit Graph(CudaStream& stream) : stream_(stream) {}
    ~Graph() override;

    // All with the stream's mutex.
    void run(const std::function<void()>& queue);
    // While `queue` runs: the next piece of work.
    void add(const Piece& piece, Work work, const std::function<Result()>& queue);
    // Where the kernel that comes next wrote its faults the last time; -1 where there is none.
    int known_fault() const;

private:
    struct Item {
        Item(const Piece& from, Work of) : work(std::move(of)) { take(from); }
        void take(const Piece& from) {
            arguments.assign(from.arguments.begin(), from.arguments.end());
            piece = from;
            piece.arguments = arguments;
        }
        std::vector<std::byte> arguments;  // in which piece.arguments lie
        Piece piece;
        Work work;
    };
    static bool equal(const Piece& a, const Piece& b);
    bool compare(const std::function<void()>& queue);
    void capture(const std::function<void()>& queue);
    void instantiate(GraphHandle graph, std::vector<GraphNode> nodes);
    void launch();
    void set_kernel(GraphNode node, const Piece& piece);
    void release_faults();

    CudaStream& stream_;
    std::vector<Item> items_;  // as they were launched last
    GraphHandle graph_ = nullptr;
    GraphExec exec_ = nullptr;
    std::vector<GraphNode> nodes_;  // of graph_, by item
    // While work is compared, or captured:
    bool is_compared_ = false, is_same_ = true;
    size_t next_ = 0;
    std::vector<GraphNode> captured_;
};

}  // namespace megjit::cuda
