// backends/cuda/kernels/matmul.cu -- products of integer matrices, whose sums wrap in the dtype R
// of the result: NVIDIA's libraries have none. A block computes 16 x 16 results, with a thread for
// each. Shared memory holds words: four elements of 8 bits along the sum, or one wider element.

constexpr u32 kTile = 16, kPacked = sizeof(T) == 1 ? 4 : 1;

// Packs elements `begin` to `begin + kPacked` of a line; elements from `end` on are zeros.
__device__ __forceinline__ u32 word(const T* line, i64 begin, i64 end, i64 stride) {
    if (kPacked == 1) return begin < end ? (u32)line[begin * stride] : 0;
    u32 bits = 0;
#pragma unroll
    for (u32 e = 0; e < kPacked; ++e)
        if (begin + e < end) bits |= (u32)(u8)line[(begin + e) * stride] << 8 * e;
    return bits;
}
__device__ __forceinline__ u32 step(u32 a, u32 b, u32 sum, i8 t) { return dot4(a, b, sum, t, t); }
__device__ __forceinline__ u32 step(u32 a, u32 b, u32 sum, u8 t) { return dot4(a, b, sum, t, t); }
template <class Wide>
__device__ __forceinline__ u32 step(u32 a, u32 b, u32 sum, Wide) { return sum + a * b; }

struct Product {
    i64 m, n, k;
    i64 a_row, a_column, b_row, b_column;  // strides
    i64 batch[8], a_batch[8], b_batch[8];  // extents, and strides: 0 where a matrix is shared
};

extern "C" __global__ void multiply(Product p, INDEX tiles_m, INDEX tiles_n, INDEX tiles, const T* a, const T* b,
                                    R* y) {
    __shared__ u32 a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];
    const u32 i = threadIdx.y, j = threadIdx.x;
    for (INDEX t = blockIdx.x; t < tiles; t += gridDim.x) {
        const INDEX line = t / tiles_n, batch = line / tiles_m;
        const i64 row = (i64)(line - batch * tiles_m) * kTile + i, column = (i64)(t - line * tiles_n) * kTile + j;
        i64 a_at = row * p.a_row, b_at = column * p.b_column;
        INDEX rest = batch;
#pragma unroll
        for (int axis = RANK - 1; axis >= 0; --axis) {
            const INDEX above = rest / (INDEX)p.batch[axis];
            a_at += (i64)(rest - above * (INDEX)p.batch[axis]) * p.a_batch[axis];
            b_at += (i64)(rest - above * (INDEX)p.batch[axis]) * p.b_batch[axis];
            rest = above;
        }
        u32 sum = 0;
        for (i64 begin = 0; begin < p.k; begin += kTile * kPacked) {
            a_tile[i][j] = row < p.m ? word(a + a_at, begin + j * kPacked, p.k, p.a_column) : 0;
            b_tile[i][j] = column < p.n ? word(b + b_at, begin + i * kPacked, p.k, p.b_row) : 0;
            __syncthreads();
#pragma unroll
            for (u32 k = 0; k < kTile; ++k) sum = step(a_tile[i][k], b_tile[k][j], sum, T());
            __syncthreads();
        }
        if (row < p.m && column < p.n) y[((i64)batch * p.m + row) * p.n + column] = (R)sum;
    }
}
