// backends/cuda/kernels/matmul.cu -- products of integer matrices, whose sums wrap in the dtype R of
// the result: no library of NVIDIA's has them. A block for 16 x 16 results, a thread for each.

constexpr u32 kTile = 16;

struct Product {
    i64 m, n, k;
    i64 a_row, a_column, b_row, b_column;  // strides
    i64 batch[8], a_batch[8], b_batch[8];  // extents, and strides: 0 where it is the same matrix
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
        for (i64 begin = 0; begin < p.k; begin += kTile) {
            a_tile[i][j] = row < p.m && begin + j < p.k ? (u32)a[a_at + (begin + j) * p.a_column] : 0;
            b_tile[i][j] = column < p.n && begin + i < p.k ? (u32)b[b_at + (begin + i) * p.b_row] : 0;
            __syncthreads();
#pragma unroll
            for (u32 k = 0; k < kTile; ++k) sum += a_tile[i][k] * b_tile[k][j];
            __syncthreads();
        }
        if (row < p.m && column < p.n) y[((i64)batch * p.m + row) * p.n + column] = (R)sum;
    }
}
