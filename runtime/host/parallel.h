// runtime/host/parallel.h -- the one thread pool of the host. Our kernels' loops are cut into
// chunks, which the caller and the pool's threads take one by one; oneDNN's tasks get the same
// threads (HelpScope, backends/cpu/onednn/dnn_threads.h).
//
// Nobody waits for a thread that has no core while work is left: the caller takes over chunks that
// nobody has begun, waits only for chunks that run, and sleeps after a short spin, so that its core
// is free for the thread it waits for. Why neither OpenMP nor oneTBB alone: benchmarks/README.md,
// "Beside a busy process".
#pragma once

#include <algorithm>
#include <cstdint>

namespace megjit::runtime {

// Threads that a region begun here may use: 1 inside a parallel region and in a forked child that
// has not asked for more.
int thread_count();
void set_thread_count(int count);  // 0: what the process is granted (thread_limits.h)

namespace pool {

using Chunk = void (*)(const void* context, int64_t index);

// Calls chunk(context, i) once for each i of [0, count), on up to `threads` threads, this one
// included. Rethrows the first exception; chunks that begin later are skipped. While another
// thread's region has the pool, the calling thread does all chunks.
void run(int threads, int64_t count, Chunk chunk, const void* context);

}  // namespace pool

// While it lives, up to `threads` - 1 idle threads of the pool call help(context, ...), once each.
// They may go on after that: what `context` points to must stay for ever; and they must not throw.
// Parallel loops of its thread run serially.
class HelpScope {
public:
    HelpScope(int threads, pool::Chunk help, const void* context);
    ~HelpScope();
    HelpScope(const HelpScope&) = delete;
    HelpScope& operator=(const HelpScope&) = delete;

private:
    bool has_pool_ = false, was_inside_ = false;
};

// Calls body(lo, hi) on disjoint parts of [0, n), whose borders are multiples of `align`; in the
// calling thread alone when n <= grain. There are a few parts per thread, each at least about
// `grain` long. An exception of `body` ends the loop and is rethrown here.
template <class Body>
void parallel_for(int64_t n, int64_t grain, int64_t align, const Body& body) {
    constexpr int64_t kPartsPerThread = 4;
    if (n <= 0) return;
    const int64_t worth = (n + grain - 1) / grain;
    const int threads = worth <= 1 ? 1 : static_cast<int>(std::min<int64_t>(thread_count(), worth));
    if (threads <= 1) return body(int64_t{0}, n);
    const int64_t parts = std::min(worth, threads * kPartsPerThread);
    struct Loop {
        const Body& body;
        int64_t n, part;
    };
    const Loop loop{body, n, ((n + parts - 1) / parts + align - 1) / align * align};
    pool::run(threads, (n + loop.part - 1) / loop.part, [](const void* context, int64_t index) {
        const Loop& all = *static_cast<const Loop*>(context);
        all.body(index * all.part, std::min(all.n, (index + 1) * all.part));
    }, &loop);
}

}  // namespace megjit::runtime
