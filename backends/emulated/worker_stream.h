// backends/emulated/worker_stream.h -- a stream whose work runs later, on a thread of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backends/emulated/device_memory.h"
#include "runtime/device.h"

namespace megjit::emulated {

// The card that is played: about an H100 with PCIe 5, computing in float32.
inline constexpr runtime::Speeds kSpeeds{.flops = 5e13, .bytes = 2e12, .link_bytes = 5e10};

// Each task waits for a random while first, so that whoever forgets to wait for it is found out.
// The clock is the emulated card's: tasks say what they take there, waiting takes what the other
// stream took.
class WorkerStream final : public runtime::Stream {
public:
    using Ticket = runtime::Ticket;

    WorkerStream(std::string device, std::shared_ptr<DeviceMemory> memory, uint64_t seed);
    ~WorkerStream() override;

    // Queues `work`, which takes `seconds` on the card.
    void run(std::function<void()> work, double seconds);
    const DeviceMemory& memory() const { return *memory_; }

    Ticket record() override;
    void synchronize(Ticket ticket) override;
    void wait(runtime::Stream& other, Ticket ticket) override;
    std::exception_ptr loss(Ticket ticket) override;
    void copy(void* to, const void* from, size_t bytes) override;
    void upload(void* to, const void* from, size_t bytes, bool stays) override;
    void download(void* to, const void* from, size_t bytes) override;
    void name_next(std::string_view op, const std::string& where) override;
    Ticket record_time() override;
    double seconds_between(Ticket begin, Ticket end) const override;
    void wait_until_idle() noexcept;

private:
    struct Task {
        std::function<void()> work;
        double seconds = 0;
        bool runs_anyway = false;  // it needs nothing that could be lost
        std::string op = {}, where = {};
    };
    // Work that did not run: from the task that failed to the last one queued when it was told.
    struct Lost {
        Ticket first = 0, last = 0;
        std::exception_ptr error;
    };
    Ticket push(Task task);
    void work();
    void run_one(Task& task, Ticket ticket);
    void refuse_in_child() const;
    const Lost* range_of(Ticket ticket) const;
    double clock_at(Ticket ticket) const;

    std::string device_;
    std::shared_ptr<DeviceMemory> memory_;
    std::minstd_rand random_;
    int process_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::deque<Task> queue_;
    Ticket queued_ = 0, done_ = 0;
    bool stops_ = false, has_failed_ = false;  // failed: and nobody was told
    std::vector<Lost> lost_;
    double now_ = 0;  // seconds of the card's clock
    std::deque<double> clocks_;  // when the last tasks were done, up to done_
    std::thread thread_;
};

}  // namespace megjit::emulated
