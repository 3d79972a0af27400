R"cuda(
// --- neighbours that move together ---
template <int N, class T>
struct alignas(N * sizeof(T)) Pack {
    T at[N];
};
template <int N, class T>
__device__ __forceinline__ Pack<N, T> load_pack(const T* from) {
    return *reinterpret_cast<const Pack<N, T>*>(from);
}
template <int N, class T>
__device__ __forceinline__ Pack<N, T> load_pack(const T* from, int count) {
    if (count == N) return load_pack<N>(from);
    Pack<N, T> pack = {};
    for (int k = 0; k < count; ++k) pack.at[k] = from[k];
    return pack;
}
template <int N, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<N, T>& pack) {
    *reinterpret_cast<Pack<N, T>*>(to) = pack;
}
template <int N, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<N, T>& pack, int count) {
    if (count == N) return store_pack(to, pack);
    for (int k = 0; k < count; ++k) to[k] = pack.at[k];
}

// --- float16 ---
__device__ __forceinline__ float from_f16(unsigned short h) {
#ifdef __CUDA_ARCH__
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
#else
    const unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 0x1Fu, mantissa = h & 0x3FFu;
    if (exponent == 0x1F) return __uint_as_float(sign | 0x7F800000u | mantissa << 13);
    if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
    return __uint_as_float(sign | __float_as_uint((float)mantissa * 0x1p-24f));
#endif
}
__device__ __forceinline__ unsigned short to_f16(float f) {
#ifdef __CUDA_ARCH__
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
#else
    const unsigned bits = __float_as_uint(f), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return (unsigned short)(sign | 0x7E00u);
    if (magnitude >= 0x477FF000u) return (unsigned short)(sign | 0x7C00u);
    if (magnitude < 0x38800000u)  // units of 2^-24, rounded to an integer
        return (unsigned short)(sign | (__float_as_uint(__uint_as_float(magnitude) * 0x1p24f + 0x1p23f) & 0xFFFFu));
    return (unsigned short)(sign | (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13);
#endif
}

// --- scalar instructions ---
__device__ __forceinline__ int max_i32(int a, int b) { return a < b ? b : a; }
__device__ __forceinline__ int min_i32(int a, int b) { return b < a ? b : a; }
__device__ __forceinline__ int add_i32(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ __forceinline__ int sub_i32(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
__device__ __forceinline__ int mul_i32(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
__device__ __forceinline__ int floor_div(int a, int b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// --- reductions (codegen/row_plan.h): a chain, or the lane of a thread. One that is neutral changes nothing ---
struct Add {
    __device__ static float of(float a, float b) { return a + b; }
    __device__ static double of(double a, double b) { return a + b; }
    __device__ static int of(int a, int b) { return add_i32(a, b); }
};
struct Mul {
    __device__ static double of(double a, double b) { return a * b; }
    __device__ static int of(int a, int b) { return mul_i32(a, b); }
};
struct Max {
    __device__ static float of(float a, float b) { return b != b ? b : a < b ? b : a; }
    __device__ static int of(int a, int b) { return max_i32(a, b); }
};
struct Min {
    __device__ static float of(float a, float b) { return b != b ? b : b < a ? b : a; }
    __device__ static int of(int a, int b) { return min_i32(a, b); }
};
template <class Join, class T>
struct Value {
    T value;
    __device__ void join(const Value& other) { value = Join::of(value, other.value); }
};
// The first place of the largest (smallest) value; the first NaN before all others.
template <bool kLargest, class T>
struct First {
    T value;
    int place;
    __device__ void join(const First& other) {
        const bool is_better = kLargest ? other.value > value : other.value < value;
        const bool is_nan = other.value != other.value, was_nan = value != value;
        const bool wins = is_nan != was_nan ? is_nan : is_better || ((is_nan || other.value == value) && other.place < place);
        if (wins) *this = other;
    }
};
__device__ __forceinline__ float variance(double sum, double squares, double count) {
    const double mean = sum / count, variance = squares / count - mean * mean;
    return variance < 0 ? 0 : variance;
}

// --- all threads of a team get the same bits: lanes are joined in the order of their threads. `scratch` is
// shared memory for a lane of each warp, or of each thread; `part` of over_block is neutral ---
template <class A>
__device__ __forceinline__ A from_lane(const A& mine, int mask) {
    int words[sizeof(A) / 4];
    memcpy(words, &mine, sizeof(A));
    for (int w = 0; w < (int)(sizeof(A) / 4); ++w) words[w] = __shfl_xor_sync(0xFFFFFFFFu, words[w], mask);
    A theirs;
    memcpy(&theirs, words, sizeof(A));
    return theirs;
}
template <class A>
__device__ __forceinline__ A over_warp(A mine) {
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) {
        A theirs = from_lane(mine, mask);
        if (threadIdx.x & mask) {
            theirs.join(mine);
            mine = theirs;
        } else {
            mine.join(theirs);
        }
    }
    return mine;
}
template <class A, int kThreads>
__device__ __forceinline__ A over_block(A mine, A part, double* scratch) {
    A* parts = reinterpret_cast<A*>(scratch);
    mine = over_warp(mine);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x % 32 < kThreads / 32) part = parts[threadIdx.x % 32];
    __syncthreads();  // before the next one writes
    return over_warp(part);
}
// Thread t holds a part of column t % 32.
template <class A, int kThreads>
__device__ __forceinline__ A over_columns(A mine, double* scratch) {
    A* parts = reinterpret_cast<A*>(scratch);
    parts[threadIdx.x] = mine;
    for (int half = kThreads / 2; half >= 32; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x].join(parts[threadIdx.x + half]);
    }
    __syncthreads();
    mine = parts[threadIdx.x % 32];
    __syncthreads();
    return mine;
}

// --- a row that several blocks share ---
template <class A>
__device__ __forceinline__ void leave_part(int* to, const A& part) {
    int words[sizeof(A) / 4];
    memcpy(words, &part, sizeof(A));
    for (int w = 0; w < (int)(sizeof(A) / 4); ++w) to[w] = words[w];
}
template <class A>
__device__ __forceinline__ A all_parts(const volatile int* from, long long stride) {
    A all;
    for (unsigned block = 0; block < gridDim.y; ++block, from += stride) {
        int words[sizeof(A) / 4];
        for (int w = 0; w < (int)(sizeof(A) / 4); ++w) words[w] = from[w];
        A part;
        memcpy(&part, words, sizeof(A));
        if (block == 0) all = part;
        else all.join(part);
    }
    return all;
}
// Have all others that share the row left their parts? Then the ticket is 0 again, for the next launch.
__device__ __forceinline__ bool is_last_block(unsigned* ticket) {
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(ticket, 1u) == gridDim.y - 1;
        if (is_last) *ticket = 0;
    }
    __syncthreads();
    __threadfence();
    return is_last;
}
)cuda"
