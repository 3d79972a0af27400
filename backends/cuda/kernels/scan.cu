// backends/cuda/kernels/scan.cu -- running sums along the middle axis of [outer, n, inner]. Floats
// are added up in double, integers wrap. Lines are divided into parts, so that a few long ones keep
// the GPU busy: first the sum of each part is computed, then the running sums, which begin with the
// parts before.

constexpr u32 kThreads = 256, kEach = 4;

#if FLOATING
typedef double Sum;
__device__ __forceinline__ Sum sum_of(T v) { return (double)widen(v); }
__device__ __forceinline__ void store(Sum sum, OUT* to) { narrow((float)sum, to); }
#else
typedef u32 Sum;
__device__ __forceinline__ Sum sum_of(T v) { return (u32)widen(v); }
__device__ __forceinline__ void store(Sum sum, OUT* to) { *to = (OUT)sum; }
#endif

struct Scan {
    i64 n, inner, parts, length;  // `length` is that of a part
    i32 exclusive, reverse;
    __device__ __forceinline__ i64 place(i64 k) const { return reverse ? n - 1 - k : k; }
    __device__ __forceinline__ i64 end(i64 part) const {
        return (part + 1) * length < n ? (part + 1) * length : n;
    }
};

__device__ __forceinline__ Sum before(const Scan& s, const Sum* sums, i64 line, i64 part) {
    Sum sum = 0;
    for (i64 p = 0; p < part; ++p) sum += sums[line * s.parts + p];
    return sum;
}

// --- columns side by side: a thread for each part of one ---

__device__ __forceinline__ i64 first_of(const Scan& s, i64 line) {
    const i64 outer = line / s.inner;
    return outer * s.n * s.inner + (line - outer * s.inner);
}

extern "C" __global__ void sum_columns(Scan s, i64 lines, const T* x, Sum* sums) {
    for (i64 i = first_thread(); i < lines * s.parts; i += all_threads()) {
        const i64 part = i / lines, line = i - part * lines;
        const T* const column = x + first_of(s, line);
        Sum sum = 0;
        for (i64 k = part * s.length; k < s.end(part); ++k) sum += sum_of(column[s.place(k) * s.inner]);
        sums[line * s.parts + part] = sum;
    }
}

extern "C" __global__ void scan_columns(Scan s, i64 lines, const T* x, const Sum* sums, OUT* y) {
    for (i64 i = first_thread(); i < lines * s.parts; i += all_threads()) {
        const i64 part = i / lines, line = i - part * lines, first = first_of(s, line);
        Sum sum = before(s, sums, line, part);
        for (i64 k = part * s.length; k < s.end(part); ++k) {
            const i64 at = first + s.place(k) * s.inner;
            const Sum next = sum + sum_of(x[at]);
            store(s.exclusive ? sum : next, y + at);
            sum = next;
        }
    }
}

// --- rows: a block for each part of one ---

// Sums over all threads before this one, and over all, in an order that follows from kThreads.
struct Joined {
    Sum before, all;
};
__device__ __forceinline__ Joined join(Sum own, Sum* shared) {
    shared[threadIdx.x] = own;
    __syncthreads();
    for (u32 apart = 1; apart < kThreads; apart *= 2) {
        const Sum other = threadIdx.x >= apart ? shared[threadIdx.x - apart] : 0;
        __syncthreads();
        own += other;
        shared[threadIdx.x] = own;
        __syncthreads();
    }
    const Joined joined = {threadIdx.x > 0 ? shared[threadIdx.x - 1] : 0, shared[kThreads - 1]};
    __syncthreads();
    return joined;
}

extern "C" __global__ void sum_rows(Scan s, i64 lines, const T* x, Sum* sums) {
    __shared__ Sum shared[kThreads];
    for (i64 i = blockIdx.x; i < lines * s.parts; i += gridDim.x) {
        const i64 line = i / s.parts, part = i - line * s.parts;
        Sum sum = 0;
        for (i64 k = part * s.length + threadIdx.x; k < s.end(part); k += kThreads) sum += sum_of(x[line * s.n + s.place(k)]);
        const Sum all = join(sum, shared).all;
        if (threadIdx.x == 0) sums[i] = all;
    }
}

extern "C" __global__ void scan_rows(Scan s, i64 lines, const T* x, const Sum* sums, OUT* y) {
    __shared__ Sum shared[kThreads];
    for (i64 i = blockIdx.x; i < lines * s.parts; i += gridDim.x) {
        const i64 line = i / s.parts, part = i - line * s.parts, end = s.end(part);
        Sum done = before(s, sums, line, part);
        for (i64 begin = part * s.length; begin < end; begin += kThreads * kEach) {
            const i64 first = begin + threadIdx.x * kEach;
            Sum own[kEach], sum = 0;
#pragma unroll
            for (u32 j = 0; j < kEach; ++j) {
                own[j] = first + j < end ? sum_of(x[line * s.n + s.place(first + j)]) : 0;
                sum += own[j];
            }
            const Joined joined = join(sum, shared);
            Sum running = done + joined.before;
#pragma unroll
            for (u32 j = 0; j < kEach; ++j) {
                const Sum next = running + own[j];
                if (first + j < end) store(s.exclusive ? running : next, y + line * s.n + s.place(first + j));
                running = next;
            }
            done += joined.all;
        }
    }
}
