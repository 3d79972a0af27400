#include "runtime/core/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "runtime/core/device.h"
#include "runtime/host/parallel.h"

namespace megjit::runtime {

namespace {

constexpr int64_t kBytes = 128 << 20;
constexpr int kRuns = 6;

double copy_bandwidth_of_host() {
    const std::unique_ptr<std::byte[]> from(new std::byte[kBytes]), to(new std::byte[kBytes]);
    std::memset(from.get(), 1, kBytes);
    double best = 0;
    for (int run = 0; run < kRuns; ++run) {  // the first one touches the pages
        const auto start = std::chrono::steady_clock::now();
        parallel_for(kBytes, 1 << 20, 4096, [&](int64_t lo, int64_t hi) {
            std::memcpy(to.get() + lo, from.get() + lo, static_cast<size_t>(hi - lo));
        });
        best = std::max(
            best,
            2.0 * kBytes /
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
}

}  // namespace

double copy_bandwidth(Device& device) {
    if (device.is_host()) return copy_bandwidth_of_host();
    const Ref<Storage> from = Storage::make(device, kBytes), to = Storage::make(device, kBytes);
    Stream& stream = device.stream();
    double best = 0;
    for (int run = 0; run < kRuns; ++run) {
        const Ticket begin = stream.record_time();
        stream.copy(to->data(), from->data(), kBytes);
        const Ticket end = stream.record_time();
        stream.synchronize(end);
        best = std::max(best, 2.0 * kBytes / stream.seconds_between(begin, end));
    }
    return best;
}

}  // namespace megjit::runtime
