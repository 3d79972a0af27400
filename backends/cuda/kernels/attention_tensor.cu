// backends/cuda/kernels/attention_tensor.cu -- attention and its gradients for float16 and bfloat16
// by tensor cores (sm_80 and later); attention.cu has the kernels for everything else, under the
// same names. A block of four warps has 64 rows of a result, each warp 16 of them, and goes through
// the other side in tiles of 64. The fragments of scores that a product leaves in the registers are
// the operands of the next one (Dao 2023, "FlashAttention-2"): there weights are rounded to the
// operands' type, and sums are float32. This text follows attention_scores.cu.
//
// Loads are unrolled as far as registers go: sums and two tiles of scores fill most of them.
//
// Fragments (PTX ISA, "Matrix fragments for mma.m16n8k16"): lane 4 g + t has rows g and g + 8, and
// of each eight columns 2 t and 2 t + 1.

constexpr u32 kThreads = 128, kPiece = 64, kWarpRows = 16;
constexpr u32 kRow = kPiece + 8;  // halves of a row in shared memory: fragments use each bank once

__device__ __forceinline__ u32 lane_row() { return threadIdx.x / 32 * kWarpRows + threadIdx.x % 32 / 4; }
__device__ __forceinline__ u32 lane_column() { return threadIdx.x % 4 * 2; }

struct Shared {
    alignas(16) T a[kTile * kRow], b[(kColumns > kTile ? kColumns : kTile) * kRow];
};

// The thread's part of a tile's scores, up to kTile rows by eight columns: it has rows lane_row()
// and lane_row() + 8.
using Scores16 = float[kTile / 8][4];

__device__ __forceinline__ u32 pair_at(const T* from) { return *(const u32*)from; }
__device__ __forceinline__ u32 pair_of(float low, float high) {
    T both[2];
    narrow(low, both), narrow(high, both + 1);
    return (u32)both[1].bits << 16 | both[0].bits;
}

#define MEGJIT_MULTIPLY(type) \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
__device__ __forceinline__ void multiply(f16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    MEGJIT_MULTIPLY("f16");
}
__device__ __forceinline__ void multiply(bf16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    MEGJIT_MULTIPLY("bf16");
}

// Loads up to kPiece columns of kTile rows; with zeros after the last row and column.
__device__ __forceinline__ void load_rows(const T* from, u32 stride, u32 rows, u32 columns, T* to) {
    const bool is_aligned = columns % 8 == 0 && stride % 8 == 0 && (u64)from % 16 == 0;
#pragma unroll 2
    for (u32 i = 0; i < kTile * kPiece / 8 / kThreads; ++i) {
        const u32 at = threadIdx.x + i * kThreads, row = at / (kPiece / 8), column = at % (kPiece / 8) * 8;
        const T* const source = from + (u64)row * stride + column;
        T* const place = to + row * kRow + column;
        if (is_aligned) {
            *(uint4*)place = row < rows && column < columns ? *(const uint4*)source : uint4{};
        } else {
#pragma unroll
            for (u32 k = 0; k < 8; ++k) place[k] = row < rows && column + k < columns ? source[k] : T{};
        }
    }
}

// Loads kTile rows of the columns of the block's result, transposed, two rows at a time.
__device__ __forceinline__ void load_turned(const T* from, u32 stride, u32 rows, u32 columns, T* to) {
#pragma unroll 2
    for (u32 i = 0; i < kTile / 2 * kColumns / kThreads; ++i) {
        const u32 at = threadIdx.x + i * kThreads, of_warp = at / 32;
        const u32 column = of_warp % (kColumns / 16) * 16 + at % 16, row = of_warp / (kColumns / 16) * 4 + at / 16 % 2 * 2;
        T both[2] = {};
#pragma unroll
        for (u32 k = 0; k < 2; ++k)
            if (row + k < rows && column < columns) both[k] = from[(u64)(row + k) * stride + column];
        *(u32*)(to + column * kRow + row) = (u32)both[1].bits << 16 | both[0].bits;
    }
}

// Sets s to the products of the rows of a and those of b.
__device__ __forceinline__ void multiply_rows(Shared& shared, const T* a, u32 a_stride, u32 a_rows, const T* b,
                                              u32 b_stride, u32 b_rows, u32 width, Scores16& s) {
#pragma unroll
    for (u32 n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (u32 i = 0; i < 4; ++i) s[n][i] = 0;
    for (u32 first = 0; first < width; first += kPiece) {
        const u32 columns = least(kPiece, width - first);
        __syncthreads();
        load_rows(a + first, a_stride, a_rows, columns, shared.a);
        load_rows(b + first, b_stride, b_rows, columns, shared.b);
        __syncthreads();
#pragma unroll 1
        for (u32 column = 0; column < columns; column += 16) {
            const T* const rows = shared.a + lane_row() * kRow + column + lane_column();
            const u32 fragment[4] = {pair_at(rows), pair_at(rows + 8 * kRow), pair_at(rows + 8),
                                     pair_at(rows + 8 * kRow + 8)};
#pragma unroll
            for (u32 n = 0; n < kTile / 8; ++n) {
                const T* const other = shared.b + (n * 8 + threadIdx.x % 32 / 4) * kRow + column + lane_column();
                multiply(T{}, s[n], fragment, {pair_at(other), pair_at(other + 8)});
            }
        }
    }
}

// Rows lane_row() and lane_row() + 8 of a block's result.
struct Sums {
    float at[kColumns / 8][4] = {};

    __device__ __forceinline__ void scale(u32 half, float factor) {
#pragma unroll
        for (u32 n = 0; n < kColumns / 8; ++n) at[n][2 * half] *= factor, at[n][2 * half + 1] *= factor;
    }
    // Adds the tile's weights times `rows` rows of x, whose columns begin where those of the result
    // do.
    __device__ __forceinline__ void add(Shared& shared, const Scores16& weights, const T* x, u32 stride, u32 rows,
                                        u32 columns) {
        __syncthreads();
        load_turned(x, stride, rows, columns, shared.b);
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < kTile / 16; ++k) {
            const float(&low)[4] = weights[2 * k], (&high)[4] = weights[2 * k + 1];
            const u32 fragment[4] = {pair_of(low[0], low[1]), pair_of(low[2], low[3]), pair_of(high[0], high[1]),
                                     pair_of(high[2], high[3])};
#pragma unroll
            for (u32 n = 0; n < kColumns / 8; ++n) {
                const T* const other = shared.b + (n * 8 + threadIdx.x % 32 / 4) * kRow + k * 16 + lane_column();
                if (n * 8 < columns) multiply(T{}, at[n], fragment, {pair_at(other), pair_at(other + 8)});
            }
        }
    }
    __device__ __forceinline__ void store(T* to, u32 stride, u32 rows, u32 columns) const {
#pragma unroll
        for (u32 n = 0; n < kColumns / 8; ++n)
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                const u32 row = lane_row() + i / 2 * 8, column = n * 8 + lane_column() + i % 2;
                if (row < rows && column < columns) narrow(at[n][i], to + (u64)row * stride + column);
            }
    }
};

// Returns a mask of the thread's scores that dropout keeps, in the tile that begins there: bit 4 n
// + i is for s[n][i]. (Random words are drawn in a loop before they are needed: all blocks of words
// at once would spill.)
template <bool over_keys>
__device__ __forceinline__ u32 kept_scores(const Scores& scores, u32 query, u32 key) {
    u32 kept = 0;
    if (!DROPS) return kept;
#pragma unroll 1
    for (u32 pair = 0; pair < kTile / 4; ++pair) {
        const u32 own = lane_row() + pair % 2 * 8, other = pair / 2 * 8 + lane_column();
        Philox::Block block{};
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            const u64 number = over_keys ? scores.number(query + own, key + other + j)
                                         : scores.number(query + other + j, key + own);
            const u32 word = (u32)(number % 4);
            if (j == 0 || !over_keys || word == 0) block = scores.random.block(number / 4);
            const u32 low = word % 2 ? block[1] : block[0], high = word % 2 ? block[3] : block[2];
            kept |= (u32)((word / 2 ? high : low) >= scores.p.dropped_below) << (2 * pair + j);
        }
    }
    return kept;
}

// Joins a value over the four threads that have a row's scores.
template <class Join>
__device__ __forceinline__ float over_row(float x, const Join& join) {
    x = join(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return join(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

// Takes one of the thread's queries and the keys from `first` on: turns the products s into
// exp(scores - the query's largest score so far), and updates `top` and `total`. Returns the factor
// for earlier sums.
__device__ __forceinline__ float softmax_step(const Scores& scores, u32 query, u32 first, u32 half, Scores16& s,
                                              float& top, float& total) {
    float largest = -infinity(), sum = 0;
#pragma unroll
    for (u32 n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            float& score = s[n][2 * half + j];
            score = scores.score(query, first + n * 8 + lane_column() + j, score);
            largest = fmaxf(largest, score);
        }
    largest = fmaxf(top, over_row(largest, [](float a, float b) { return fmaxf(a, b); }));
    const float shift = largest == -infinity() ? 0 : largest;  // if all keys so far are hidden
#pragma unroll
    for (u32 n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (u32 j = 0; j < 2; ++j) {
            float& score = s[n][2 * half + j];
            sum += score = expf(score - shift);
        }
    const float factor = expf(top - shift);
    total = total * factor + over_row(sum, [](float a, float b) { return a + b; });
    top = largest;
    return factor;
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) attend(Attention p, u32 units, const T* q, const T* k,
                                                                 const T* v, Masks masks, const i32* key, T* y,
                                                                 float* lse) {
    __shared__ Shared shared;
    for (u32 number = blockIdx.x; number < units; number += gridDim.x) {
        const Unit unit(number, p.queries, p.value_width, p.is_causal);
        const u64 key_head = key_head_of(p, unit.head);
        const Scores scores(p, unit.head, masks, key);
        const T *const queries = row_of(q, p.q, unit.head, p.heads, unit.row),
                *const keys = row_of(k, p.k, key_head, p.key_heads, 0),
                *const values = row_of(v, p.v, key_head, p.key_heads, 0);
        const u32 end = end_of_keys(p, unit.row, unit.rows);
        float top[2] = {-infinity(), -infinity()}, total[2] = {};
        Sums sums;
        for (u32 first = 0; first < end; first += kTile) {
            const u32 rows = least(kTile, p.keys - first);
            const u32 kept = kept_scores<true>(scores, unit.row, first);
            Scores16 s;
            multiply_rows(shared, queries, p.q.row, unit.rows, keys + (u64)first * p.k.row, p.k.row, rows, p.width, s);
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                const float factor =
                    softmax_step(scores, unit.row + lane_row() + half * 8, first, half, s, top[half], total[half]);
                sums.scale(half, factor);
                if (DROPS) {
#pragma unroll
                    for (u32 n = 0; n < kTile / 8; ++n)
#pragma unroll
                        for (u32 j = 0; j < 2; ++j)
                            s[n][2 * half + j] *= kept >> (4 * n + 2 * half + j) & 1 ? p.kept : 0;
                }
            }
            sums.add(shared, s, values + (u64)first * p.v.row + unit.column, p.v.row, rows, unit.columns);
        }
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            sums.scale(half, reciprocal_of(p, total[half]));
            const u32 row = lane_row() + half * 8;
            if (row < unit.rows && unit.column == 0 && lane_column() == 0)
                lse[unit.head * p.queries + unit.row + row] = top[half] + logf(total[half]);
        }
        sums.store(row_of(y, p.y, unit.head, p.heads, unit.row) + unit.column, p.y.row, unit.rows, unit.columns);
    }
}

// --- gradients ----------------------------------------------------------------------------------

// Computes what the gradients need of each query: its shifts (lse, or its parts) and its dot.
extern "C" __global__ void __launch_bounds__(kThreads, 2) find_shifts(Attention p, u32 units, Operands o,
                                                                      const T* y, float2* shifts, float* dots) {
    __shared__ Shared shared;
    for (u32 number = blockIdx.x; number < units; number += gridDim.x) {
        const Unit unit(number, p.queries, kTile, p.is_causal);
        find_dots(p, unit, y, o.dy, dots);
        const u64 row = unit.head * p.queries + unit.row;
        const T *const queries = row_of(o.q, p.q, unit.head, p.heads, unit.row),
                *const keys = row_of(o.k, p.k, key_head_of(p, unit.head), p.key_heads, 0);
        const Scores scores(p, unit.head, o.masks, o.key);
        const u32 end = are_rounded(o.lse + row, unit.rows) ? end_of_keys(p, unit.row, unit.rows) : 0;
        float top[2] = {-infinity(), -infinity()}, total[2] = {};
        for (u32 first = 0; first < end; first += kTile) {
            Scores16 s;
            multiply_rows(shared, queries, p.q.row, unit.rows, keys + (u64)first * p.k.row, p.k.row,
                          least(kTile, p.keys - first), p.width, s);
#pragma unroll
            for (u32 half = 0; half < 2; ++half)
                softmax_step(scores, unit.row + lane_row() + half * 8, first, half, s, top[half], total[half]);
        }
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u32 at = lane_row() + half * 8;
            if (at < unit.rows && lane_column() == 0)
                shifts[row + at] = shift_of(p, o.lse[row + at], top[half], total[half]);
        }
    }
}

// Computes the weights of a tile, rows of the result by rows of the other side: queries by keys
// where the sum goes over keys, else keys by queries. They are the gradient of the products of
// queries and keys, or the probabilities after dropout. Both are 0 after the last query, whose
// scores are minus infinity.
template <bool of_products, bool over_keys>
__device__ __forceinline__ void tile_weights(Shared& shared, const Attention& p, const Operands& o, u64 head, u32 query,
                                             u32 key, Scores16& s) {
    const u64 row = head * p.queries + query, key_head = key_head_of(p, head);
    const u32 rows = least(kTile, p.queries - query), key_rows = least(kTile, p.keys - key);
    const Scores scores(p, head, o.masks, o.key);
    const auto multiply_sides = [&](const T* queries, const View& of_queries, const T* keys, const View& of_keys, u32 width,
                                    Scores16& to) {
        queries = row_of(queries, of_queries, head, p.heads, query);
        keys = row_of(keys, of_keys, key_head, p.key_heads, key);
        if (over_keys) multiply_rows(shared, queries, of_queries.row, rows, keys, of_keys.row, key_rows, width, to);
        else multiply_rows(shared, keys, of_keys.row, key_rows, queries, of_queries.row, rows, width, to);
    };
    multiply_sides(o.q, p.q, o.k, p.k, p.width, s);
    Scores16 d;
    if (of_products) multiply_sides(o.dy, p.dy, o.v, p.v, p.value_width, d);
    const u32 kept = kept_scores<over_keys>(scores, query, key);
#pragma unroll
    for (u32 n = 0; n < kTile / 8; ++n)
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const u32 own = lane_row() + half * 8, other = n * 8 + lane_column();
#pragma unroll
            for (u32 j = 0; j < 2; ++j) {
                const u32 of_query = over_keys ? own : other + j, of_key = over_keys ? other + j : own;
                const bool is_there = of_query < rows;
                const float factor = !DROPS ? 1 : kept >> (4 * n + 2 * half + j) & 1 ? p.kept : 0;
                float& weight = s[n][2 * half + j];
                const float2 shift = is_there ? o.shifts[row + of_query] : float2{};
                weight = expf(scores.score(query + of_query, key + of_key, weight) - shift.x - shift.y);
                if (!of_products) weight *= factor;
                else if (scores.is_replaced(query + of_query, key + of_key)) weight = 0;
                else weight *= (d[n][2 * half + j] * factor - (is_there ? o.dots[row + of_query] : 0)) * p.scale;
            }
        }
}

template <bool of_products, bool over_keys>
__device__ __forceinline__ void add_tile(Sums& sums, Shared& shared, const Attention& p, const Operands& o, u64 head,
                                         u32 query, u32 key, const T* x, u32 stride, u32 rows, u32 columns) {
    Scores16 weights;
    tile_weights<of_products, over_keys>(shared, p, o, head, query, key, weights);
    sums.add(shared, weights, x, stride, rows, columns);
}
