#include "runtime/parallel.h"

#include <atomic>

#include <pthread.h>

namespace megjit::runtime {
namespace {

std::atomic<int>& wanted_threads() {
    static std::atomic<int> count{0};  // 0: as OpenMP decides
    return count;
}

// A forked child has none of the pool's threads, and OpenMP would wait for them forever.
const int kForkHandler = pthread_atfork(nullptr, nullptr, [] { wanted_threads() = 1; });

}  // namespace

int thread_count() {
    (void)kForkHandler;
    const int wanted = wanted_threads().load(std::memory_order_relaxed);
    if (wanted == 1 || omp_in_parallel()) return 1;
    return wanted > 0 ? wanted : omp_get_max_threads();
}

void set_thread_count(int count) { wanted_threads() = std::max(0, count); }

}  // namespace megjit::runtime
