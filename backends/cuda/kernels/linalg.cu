// backends/cuda/kernels/linalg.cu -- inverses by Gauss and Jordan with row pivots, in double: the
// arithmetic of the CPU's kernel, element for element. A block for each matrix.

constexpr u32 kThreads = 256;

// A pivot is the row from c on with the largest element in column c: the first of equal ones, and a
// NaN only if it is on the diagonal.
struct Pivot {
    double size;
    u32 row;
};
__device__ __forceinline__ Pivot pivot_of(const double* a, u32 n, u32 c, double* sizes, u32* rows) {
    Pivot best = {-1, c};
    for (u32 r = c + threadIdx.x; r < n; r += kThreads) {
        double size = fabs(a[(u64)r * n + c]);
        if (size != size) size = r == c ? __longlong_as_double(0x7FF0000000000000) : -1;
        if (size > best.size) best = {size, r};
    }
    sizes[threadIdx.x] = best.size;
    rows[threadIdx.x] = best.row;
    __syncthreads();
    for (u32 half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            const double other = sizes[threadIdx.x + half];
            const u32 row = rows[threadIdx.x + half];
            if (other > sizes[threadIdx.x] || (other == sizes[threadIdx.x] && row < rows[threadIdx.x]))
                sizes[threadIdx.x] = other, rows[threadIdx.x] = row;
        }
        __syncthreads();
    }
    best = {sizes[0], rows[0]};
    __syncthreads();
    return best;
}

// `work` holds [n, 2 n] for each matrix, which are the matrix and its future inverse side by side;
// and a column.
extern "C" __global__ void matinv(u32 n, INDEX count, const float* x, float* y, double* work, Fault* fault) {
    __shared__ double sizes[kThreads];
    __shared__ u32 rows[kThreads];
    const u64 size = (u64)n * n;
    for (INDEX k = blockIdx.x; k < count; k += gridDim.x) {
        double *const a = work + k * (2 * size + n), *const inverse = a + size, *const factors = inverse + size;
        for (u64 i = threadIdx.x; i < size; i += kThreads) {
            a[i] = x[k * size + i];
            inverse[i] = i / n == i % n;
        }
        __syncthreads();
        for (u32 c = 0; c < n; ++c) {
            const Pivot pivot = pivot_of(a, n, c, sizes, rows);
            if (pivot.size == 0) {
                if (threadIdx.x == 0) tell(fault, 0, k, (i32)k);
                break;
            }
            const double scale = 1 / a[(u64)pivot.row * n + c];
            __syncthreads();
            for (u32 i = threadIdx.x; i < 2 * n; i += kThreads) {  // exchanges rows, and scales
                double* const m = i < n ? a + i : inverse + (i - n);
                const double other = m[(u64)c * n];
                m[(u64)c * n] = i < c ? m[(u64)pivot.row * n] : m[(u64)pivot.row * n] * scale;
                if (pivot.row != c) m[(u64)pivot.row * n] = other;
            }
            __syncthreads();
            for (u32 r = threadIdx.x; r < n; r += kThreads) factors[r] = r == c ? 0 : a[(u64)r * n + c];
            __syncthreads();
            for (u64 i = threadIdx.x; i < 2 * size; i += kThreads) {
                const u32 r = (u32)(i / (2 * n)), j = (u32)(i - (u64)r * 2 * n);
                if (factors[r] == 0 || (j < n && j < c)) continue;
                double* const m = j < n ? a + j : inverse + (j - n);
                m[(u64)r * n] -= factors[r] * m[(u64)c * n];
            }
            __syncthreads();
        }
        for (u64 i = threadIdx.x; i < size; i += kThreads) y[k * size + i] = (float)inverse[i];
        __syncthreads();
    }
}
