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

// --- float16 and bfloat16 ---
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
__device__ __forceinline__ float from_bf16(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
__device__ __forceinline__ unsigned short to_bf16(float f) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned short h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
#else
    const unsigned bits = __float_as_uint(f);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (unsigned short)(bits >> 16 | 0x40u);
    return (unsigned short)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
#endif
}

// --- scalar instructions ---
__device__ __forceinline__ float max_f32(float a, float b) { return a != a ? a : b != b ? b : a < b ? b : a; }
__device__ __forceinline__ float min_f32(float a, float b) { return a != a ? a : b != b ? b : b < a ? b : a; }
__device__ __forceinline__ int max_i32(int a, int b) { return a < b ? b : a; }
__device__ __forceinline__ int min_i32(int a, int b) { return b < a ? b : a; }
__device__ __forceinline__ int to_i32(float a) { return a >= -0x1p31f && a < 0x1p31f ? (int)a : -2147483647 - 1; }
__device__ __forceinline__ int add_i32(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ __forceinline__ int sub_i32(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
__device__ __forceinline__ int mul_i32(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
__device__ __forceinline__ int floor_div(int a, int b) {
    if (b == 0) return 0;
    if (b == -1) return sub_i32(0, a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
__device__ __forceinline__ int floor_mod(int a, int b) { return b == 0 ? 0 : sub_i32(a, mul_i32(floor_div(a, b), b)); }

// --- reductions: add takes an element and its place in the row, merge what another thread has; the other's
// places may lie anywhere. All are of 4-byte fields, and one without elements changes nothing ---
struct Sum {
    float value = 0;
    __device__ void add(float x, int) { value += x; }
    __device__ void merge(const Sum& other) { value += other.value; }
    __device__ float result(float) const { return value; }
};
struct Mean {
    float value = 0;
    __device__ void add(float x, int) { value += x; }
    __device__ void merge(const Mean& other) { value += other.value; }
    __device__ float result(float length) const { return length > 0 ? value / length : 0; }
};
struct Prod {
    float value = 1;
    __device__ void add(float x, int) { value *= x; }
    __device__ void merge(const Prod& other) { value *= other.value; }
    __device__ float result(float) const { return value; }
};
struct Max {
    float value = __uint_as_float(0xFF800000u);
    __device__ void add(float x, int) { value = max_f32(value, x); }
    __device__ void merge(const Max& other) { add(other.value, 0); }
    __device__ float result(float) const { return value; }
};
struct Min {
    float value = __uint_as_float(0x7F800000u);
    __device__ void add(float x, int) { value = min_f32(value, x); }
    __device__ void merge(const Min& other) { add(other.value, 0); }
    __device__ float result(float) const { return value; }
};
struct SumI {
    int value = 0;
    __device__ void add(int x, int) { value = add_i32(value, x); }
    __device__ void merge(const SumI& other) { add(other.value, 0); }
    __device__ int result(float) const { return value; }
};
struct ProdI {
    int value = 1;
    __device__ void add(int x, int) { value = mul_i32(value, x); }
    __device__ void merge(const ProdI& other) { add(other.value, 0); }
    __device__ int result(float) const { return value; }
};
struct MaxI {
    int value = -2147483647 - 1;
    __device__ void add(int x, int) { value = max_i32(value, x); }
    __device__ void merge(const MaxI& other) { add(other.value, 0); }
    __device__ int result(float) const { return value; }
};
struct MinI {
    int value = 2147483647;
    __device__ void add(int x, int) { value = min_i32(value, x); }
    __device__ void merge(const MinI& other) { add(other.value, 0); }
    __device__ int result(float) const { return value; }
};
struct Any {
    int value = 0;
    __device__ void add(bool x, int) { value |= x; }
    __device__ void merge(const Any& other) { value |= other.value; }
    __device__ bool result(float) const { return value; }
};
struct All {
    int value = 1;
    __device__ void add(bool x, int) { value &= x; }
    __device__ void merge(const All& other) { value &= other.value; }
    __device__ bool result(float) const { return value; }
};
// The first place of the largest (smallest) value; the first NaN before all others.
template <class T, bool kLargest>
struct Arg {
    T value = 0;
    int place = -1;
    __device__ void add(T x, int at) {
        const bool is_better = kLargest ? x > value : x < value;
        const bool is_nan = x != x, was_nan = value != value;
        const bool wins = is_nan != was_nan ? is_nan : is_better || ((is_nan || x == value) && at < place);
        if (place >= 0 && !wins) return;
        value = x;
        place = at;
    }
    __device__ void merge(const Arg& other) {
        if (other.place >= 0) add(other.value, other.place);
    }
    __device__ int result(float) const { return place < 0 ? 0 : place; }
};
// Welford 1962; merged as Chan, Golub and LeVeque 1979.
struct Variance {
    float count = 0, mean = 0, squares = 0;
    __device__ void add(float x, int) {
        count += 1;
        const float step = x - mean;
        mean += step * __frcp_rn(count);
        squares += step * (x - mean);
    }
    __device__ void merge(const Variance& other) {
        if (other.count == 0) return;
        const float step = other.mean - mean, part = other.count / (count + other.count);
        mean += step * part;
        squares += other.squares + step * step * part * count;
        count += other.count;
    }
    __device__ float result(float length) const { return squares / length; }
};

// --- all threads of a team get the same bits: parts are merged in the order of their threads. `scratch` is
// shared memory for a part of each warp, or of each thread ---
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
            theirs.merge(mine);
            mine = theirs;
        } else {
            mine.merge(theirs);
        }
    }
    return mine;
}
template <class A, int kThreads>
__device__ __forceinline__ A over_block(A mine, int* scratch) {
    A* parts = reinterpret_cast<A*>(scratch);
    mine = over_warp(mine);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
    __syncthreads();
    A part;
    if (threadIdx.x % 32 < kThreads / 32) part = parts[threadIdx.x % 32];
    __syncthreads();  // before the next one writes
    return over_warp(part);
}
// Thread t holds a part of column t % 32.
template <class A, int kThreads>
__device__ __forceinline__ A over_columns(A mine, int* scratch) {
    A* parts = reinterpret_cast<A*>(scratch);
    parts[threadIdx.x] = mine;
    for (int half = kThreads / 2; half >= 32; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) parts[threadIdx.x].merge(parts[threadIdx.x + half]);
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
        all.merge(part);
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
