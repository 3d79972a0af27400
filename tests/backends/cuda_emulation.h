// Lets the CUDA C++ that backends/nvrtc prints compile as C++ for the host. The threads of a block
// are fibers that run one after the other, in a fixed order; they change places at barriers alone.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static  // blocks run one after the other

struct Dim {
    unsigned x = 0, y = 0;
};
static Dim threadIdx, blockIdx, gridDim;

// --- fibers ---

struct Barrier {
    unsigned members = 0, arrived = 0, generation = 0;
    void release_when_full() {
        if (arrived < members || arrived == 0) return;
        arrived = 0;
        ++generation;
    }
};

struct Block {
    static constexpr size_t kStack = 64 << 10;
    ucontext_t scheduler;  // where fibers start from,
    std::vector<ucontext_t> starts;
    struct Place {
        jmp_buf buffer;
    };
    Place scheduling;  // and where they go back to: jumps need no system call
    std::vector<Place> fibers;
    std::vector<bool> started, done;
    std::unique_ptr<char[]> stacks;
    Barrier all;
    Barrier warps[32];
    int words[32][32];  // what the lanes of a warp exchange
    bool progress = false;
    void (*body)(const void*) = nullptr;
    const void* argument = nullptr;
};
static Block block;

static void leave_fiber() {
    if (_setjmp(block.fibers[threadIdx.x].buffer) == 0) _longjmp(block.scheduling.buffer, 1);
}

static void enter_fiber(unsigned t) {
    if (_setjmp(block.scheduling.buffer) != 0) return;
    threadIdx.x = t;
    if (block.started[t]) _longjmp(block.fibers[t].buffer, 1);
    block.started[t] = true;
    swapcontext(&block.scheduler, &block.starts[t]);
}

static void wait_at(Barrier& barrier) {
    const unsigned mine = barrier.generation;
    block.progress = true;
    ++barrier.arrived;
    barrier.release_when_full();
    while (barrier.generation == mine) leave_fiber();
}

static void fiber() {
    block.body(block.argument);
    const unsigned self = threadIdx.x;
    block.done[self] = block.progress = true;
    for (Barrier* barrier : {&block.all, &block.warps[self / 32]}) {
        --barrier->members;
        barrier->release_when_full();
    }
    leave_fiber();
}

static void run_block(unsigned threads) {
    if (!block.stacks) block.stacks.reset(new char[1024 * Block::kStack]);
    block.starts.resize(threads);
    block.fibers.resize(threads);
    block.started.assign(threads, false);
    block.done.assign(threads, false);
    block.all = {threads};
    for (unsigned warp = 0; warp < threads / 32; ++warp) block.warps[warp] = {32};
    for (unsigned t = 0; t < threads; ++t) {
        ucontext_t& it = block.starts[t];
        getcontext(&it);
        it.uc_stack.ss_sp = block.stacks.get() + t * Block::kStack;
        it.uc_stack.ss_size = Block::kStack;
        makecontext(&it, fiber, 0);
    }
    do {
        block.progress = false;
        for (unsigned t = 0; t < threads; ++t)
            if (!block.done[t]) enter_fiber(t);
    } while (block.progress);
    for (unsigned t = 0; t < threads; ++t)
        if (!block.done[t]) {
            std::fprintf(stderr,
                         "cuda_emulation: thread %u waits at a barrier that others never reach\n",
                         t);
            std::abort();
        }
}

// Calls `kernel` with its parameters as a launch packs them.
template <class... Parameters>
void emulate(void (*kernel)(Parameters...), const unsigned* grid, unsigned threads,
             const uint64_t* words) {
    struct Call {
        void (*kernel)(Parameters...);
        const uint64_t* words;
    } call{kernel, words};
    block.argument = &call;
    block.body = [](const void* argument) {
        const Call& call = *static_cast<const Call*>(argument);
        [&]<size_t... K>(std::index_sequence<K...>) {
            call.kernel((Parameters)call.words[K]...);
        }(std::index_sequence_for<Parameters...>());
    };
    gridDim = {grid[0], grid[1]};
    for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) run_block(threads);
}

// --- the device functions that kernels call ---

static void __syncthreads() { wait_at(block.all); }
static void __syncwarp() { wait_at(block.warps[threadIdx.x / 32]); }
static int __shfl_xor_sync(unsigned, int value, int mask) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    block.words[warp][lane] = value;
    __syncwarp();
    const int other = block.words[warp][lane ^ static_cast<unsigned>(mask)];
    __syncwarp();  // before the next exchange
    return other;
}
static void __threadfence() {}
static unsigned atomicAdd(unsigned* at, unsigned value) { return std::exchange(*at, *at + value); }
static float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
static float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
static unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
static int __float_as_int(float value) { return std::bit_cast<int>(value); }
static float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static float __fsqrt_rn(float a) { return std::sqrt(a); }
static float __frcp_rn(float a) { return 1 / a; }
