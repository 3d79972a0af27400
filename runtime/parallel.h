// runtime/parallel.h -- the one thread pool of the host: OpenMP, shared with oneDNN.
#pragma once

#include <algorithm>
#include <cstdint>

#include <omp.h>

namespace megjit::runtime {

// Threads to use from here: 1 inside a parallel region and in a forked child, whose pool is gone.
int thread_count();
void set_thread_count(int count);  // 0: as OpenMP decides

// Calls body(lo, hi) on disjoint parts of [0, n), whose borders are multiples of `align`; in the
// calling thread alone when n <= grain. `body` must not throw.
template <class Body>
void parallel_for(int64_t n, int64_t grain, int64_t align, const Body& body) {
    if (n <= 0) return;
    const int64_t wanted = std::min<int64_t>(thread_count(), (n + grain - 1) / grain);
    if (wanted <= 1) return body(int64_t{0}, n);
    const int64_t part = ((n + wanted - 1) / wanted + align - 1) / align * align;
#pragma omp parallel num_threads(static_cast<int>(wanted))
    {
        const int64_t lo = part * omp_get_thread_num();
        const int64_t hi = std::min(n, lo + part);
        if (lo < hi) body(lo, hi);
    }
}

}  // namespace megjit::runtime
