// Signals that come while the library computes: their handlers run on the stack of the thread.
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

struct Stack {
    const char *begin = nullptr, *end = nullptr;
};
Stack stack;  // of the thread that computes
std::atomic<int> seen, elsewhere;

void handle(int) {
    const char here = 0;
    ++seen;
    if (&here < stack.begin || &here >= stack.end) ++elsewhere;
}

Stack own_stack() {
    pthread_attr_t attributes;
    void* begin = nullptr;
    size_t bytes = 0;
    EXPECT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
    EXPECT_EQ(pthread_attr_getstack(&attributes, &begin, &bytes), 0);
    pthread_attr_destroy(&attributes);
    return {static_cast<char*>(begin), static_cast<char*>(begin) + bytes};
}

// While it lives, a thread sends signals to the one that made it.
class Storm {
public:
    Storm() {
        stack = own_stack();
        struct sigaction action = {};
        action.sa_handler = handle;
        sigaction(SIGUSR1, &action, &before_);
        sender_ = std::thread([this, to = pthread_self()] {
            while (!is_over_) {
                pthread_kill(to, SIGUSR1);
                std::this_thread::yield();
            }
        });
    }
    ~Storm() {
        is_over_ = true;
        sender_.join();
        sigaction(SIGUSR1, &before_, nullptr);
    }
    Storm(const Storm&) = delete;
    Storm& operator=(const Storm&) = delete;

private:
    struct sigaction before_ = {};
    std::atomic<bool> is_over_ = false;
    std::thread sender_;
};

TEST(DnnSignals, FindTheStackOfTheirThread) {
    const auto of = [](DType dtype, const Shape& shape) {
        return random({.dtype = dtype, .shape = shape}, 0);
    };
    const Storm storm;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
        for (const auto& [m, k, n] : {std::tuple{64, 9000, 48}, {512, 512, 256}, {1, 4096, 300}})
            for (const int64_t transposed : {0, 1}) {
                const Shape second = transposed ? Shape{n, k} : Shape{k, n};
                run("matmul", {of(dtype, {m, k}), of(dtype, second)}, {int64_t{0}, transposed});
            }
    const Attrs dilated{Ints{1, 1}, Ints{2, 2}, Ints{2, 2}, int64_t{1}};
    run("conv", {of(DType::f32, {2, 64, 20, 20}), of(DType::f32, {48, 64, 3, 3})}, dilated);
    EXPECT_GT(seen, 0);
    EXPECT_EQ(elsewhere, 0);
}

}}  // namespace megjit::testing
