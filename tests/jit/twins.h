// tests/jit/twins.h -- the communicator of two processes that have the same numbers.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/core/communicator.h"

namespace megjit::jit {

// A group that computes float32 sums alone. Call `fails` throws.
class Twins final : public runtime::Communicator {
public:
    int rank() const override { return 0; }
    int size() const override { return 2; }
    void all_reduce(const Call&, const void* in, void* out, int64_t count, runtime::DType,
                    runtime::Combine) override {
        {
            const std::lock_guard lock(mutex_);
            threads.push_back(std::this_thread::get_id());
            counts.push_back(count);
        }
        called_.notify_all();
        if (calls() == fails) throw std::runtime_error("rank 1 is gone");
        for (int64_t i = 0; i < count; ++i)
            static_cast<float*>(out)[i] = 2 * static_cast<const float*>(in)[i];
    }
    void reduce(const Call&, const void*, void*, int64_t, runtime::DType, runtime::Combine,
                int) override {}
    void reduce_scatter(const Call&, const void*, void*, int64_t, runtime::DType,
                        runtime::Combine) override {}
    void all_gather(const Call&, const void*, void*, size_t) override {}
    void broadcast(const Call&, const void*, void*, size_t, int) override {}
    void exchange(const Call&, std::span<const runtime::OutgoingBytes>,
                  std::span<const runtime::IncomingBytes>) override {}
    std::string lost(int) override { return {}; }
    [[noreturn]] void give_up(const Call&, std::string what, std::string) override {
        throw std::runtime_error(what);
    }
    double seconds() const override { return 600; }

    int calls() {
        const std::lock_guard lock(mutex_);
        return static_cast<int>(threads.size());
    }
    void wait_for_calls(size_t count) {
        std::unique_lock lock(mutex_);
        called_.wait(lock, [&] { return threads.size() >= count; });
    }

    int fails = 0;  // counted from 1; 0: none
    std::vector<std::thread::id> threads;  // of each call
    std::vector<int64_t> counts;

private:
    std::mutex mutex_;
    std::condition_variable called_;
};

}  // namespace megjit::jit
