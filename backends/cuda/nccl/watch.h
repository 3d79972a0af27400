// backends/cuda/nccl/watch.h -- Watch: a thread that looks after what NCCL has queued. A member
// that is killed would leave the GPUs of all others waiting for ever.
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

    // One operation on its way.
    struct Flight {
        std::shared_ptr<Group> group;
        Call call;
        CudaStream* results = nullptr;
        CudaStream::Ticket first = 0;  // of `results`: what is lost when it fails, and all behind
        Event begin = nullptr, end = nullptr;
        Clock::time_point runs_since = {}, lost_since = {};
    };

    static Watch& instance();

    Event event(const Gpu& gpu);  // a free one
    void add(Flight flight);

private:
    void run();
    bool is_past(const Flight& flight, Event event) const;
    // What is wrong with the first one; empty while nothing is.
    std::string fault_of(Flight& flight, std::string* why) const;
    // All that is on its way is lost; groups end.
    void fail(std::deque<Flight> flights, std::string what, std::string why);

    std::mutex mutex_;  // of all below
    std::condition_variable added_;
    std::deque<Flight> flights_;  // in the order in which they run
    std::map<const Gpu*, std::vector<Event>> spare_;
    std::thread thread_;
};

}  // namespace megjit::cuda::nccl
