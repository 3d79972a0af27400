// backends/cuda/nccl/watch.h -- Watch: a thread that watches the work that NCCL has queued. Without
// it, a member that is killed would leave the GPUs of all others waiting for ever.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/cuda/nccl/group.h"

namespace megjit::cuda::nccl {

class Watch {
public:
    using Clock = std::chrono::steady_clock;

    // One queued operation.
    struct Flight {
        std::shared_ptr<Group> group;
        Call call;
        CudaStream* results = nullptr;
        CudaStream::Ticket first = 0;  // ticket of `results`: if it fails, all from here on is lost
        Event begin = nullptr, end = nullptr;
        Clock::time_point runs_since = {}, lost_since = {};
    };

    static Watch& instance();

    Event event(const Gpu& gpu);  // an unused event
    void add(Flight flight);

private:
    void run();
    bool is_past(const Flight& flight, Event event) const;
    // Says what is wrong with the first flight; "" means nothing.
    std::string fault_of(Flight& flight, std::string* why) const;
    // Fails all flights, and ends their groups.
    void fail(std::deque<Flight> flights, std::string what, std::string why);

    std::mutex mutex_;  // guards everything below
    std::condition_variable added_;
    std::deque<Flight> flights_;  // in the order in which they run
    std::map<const Gpu*, std::vector<Event>> spare_;
    std::thread thread_;
};

}  // namespace megjit::cuda::nccl
