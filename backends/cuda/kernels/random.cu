// backends/cuda/kernels/random.cu -- random numbers, with the bits of the CPU's. This text follows
// philox.h and distributions.h, which it compiles again.

using namespace megjit::runtime;

struct alignas(16) Four {
    float at[4];
};

// Each block of four words has a thread. The last block may be cut off.
template <class Make>
__device__ __forceinline__ void over_blocks(INDEX n, const i32* key, float* y, const Make& make) {
    const Philox g = Philox::from_key(key);
    for (INDEX block = first_thread(); block * 4 < n; block += all_threads()) {
        const Four made = make(g.block(block));
        if (n - block * 4 >= 4) {
            *(Four*)(y + block * 4) = made;
        } else {
#pragma unroll
            for (int j = 0; j < 3; ++j)
                if (block * 4 + j < n) y[block * 4 + j] = made.at[j];
        }
    }
}

extern "C" __global__ void uniform(INDEX n, const i32* key, float* y) {
    over_blocks(n, key, y, [](const Philox::Block& b) {
        return Four{unit_float(b[0]), unit_float(b[1]), unit_float(b[2]), unit_float(b[3])};
    });
}

extern "C" __global__ void normal(INDEX n, const i32* key, float* y) {
    over_blocks(n, key, y, [](const Philox::Block& b) {
        Four made;
        normal_pair(b[0], b[1], made.at, made.at + 1);
        normal_pair(b[2], b[3], made.at + 2, made.at + 3);
        return made;
    });
}

extern "C" __global__ void dropout_mask(INDEX n, u32 threshold, float kept, const i32* key, float* y) {
    over_blocks(n, key, y, [=](const Philox::Block& b) {
        return Four{b[0] < threshold ? 0.0f : kept, b[1] < threshold ? 0.0f : kept, b[2] < threshold ? 0.0f : kept,
                    b[3] < threshold ? 0.0f : kept};
    });
}

// Each element has a thread, which draws from a stream of its own.
#define MEGJIT_DRAW(name, parameters, number)                                           \
    extern "C" __global__ void name parameters {                                        \
        const Philox g = Philox::from_key(key);                                         \
        for (INDEX i = first_thread(); i < n; i += all_threads()) y[i] = number; \
    }
MEGJIT_DRAW(random_gamma, (INDEX n, const i32* key, const float* a, const float* b, float* y),
            gamma_number(g, (i64)i, a[i], b[i]))
MEGJIT_DRAW(random_beta, (INDEX n, const i32* key, const float* a, const float* b, float* y),
            beta_number(g, (i64)i, a[i], b[i]))
MEGJIT_DRAW(random_poisson, (INDEX n, const i32* key, const float* rate, float* y),
            poisson_number(g, (i64)i, rate[i]))
