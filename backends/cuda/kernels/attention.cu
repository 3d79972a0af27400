// backends/cuda/kernels/attention.cu -- attention and its gradients, for what cuDNN does not take:
// a block computes 64 rows of a result, and goes through the other side in tiles of 64 queries and
// 64 keys, whose scores never leave it. A thread has 4 x 4 of a tile's scores, and 4 rows of the
// result. Gradients compute the scores again; those of queries, keys and values are computed by
// blocks of their own: so nothing is added by atomics, and each run gives the same bits. Sums are
// float32.
//
// The running maximum and total of each query follow Milakov & Gimelshein 2018, "Online normalizer
// calculation for softmax"; backward is that of Dao et al. 2022, "FlashAttention". This text
// follows attention_scores.cu.
//
// Loops of products are not unrolled: more simultaneous loads would spill registers.

constexpr u32 kPiece = 16, kThreads = 256;
constexpr u32 kRow = kTile + 4;  // floats of a row in shared memory: aligned, and spread over the
                                 // banks
constexpr u32 kGroups = kColumns / kTile;

__device__ __forceinline__ u32 thread_row() { return threadIdx.x / 16 * 4; }
__device__ __forceinline__ u32 thread_column() { return threadIdx.x % 16 * 4; }

struct Shared {
    alignas(16) float pieces[2 * kPiece * kRow];
    alignas(16) float weights[kTile * kRow];  // [summed over][row of the result]

    // The weight of the thread's query i and key j, for a sum over the keys or over the queries.
    template <bool over_keys>
    __device__ __forceinline__ float& weight(u32 i, u32 j) {
        const u32 query = thread_row() + i, key = thread_column() + j;
        return weights[over_keys ? key * kRow + query : query * kRow + key];
    }
    // Dropout multiplies each probability by its factor; only the thread that stored it reads it.
    float factors[DROPS ? 16 * kThreads : 1];
    __device__ __forceinline__ float& factor(u32 i, u32 j) { return factors[(i * 4 + j) * kThreads + threadIdx.x]; }
    __device__ __forceinline__ float dropped(float x, u32 i, u32 j) { return DROPS ? x * factor(i, j) : x; }
};

__device__ __forceinline__ void load_four(const float* from, float (&to)[4]) {
    const float4 four = *(const float4*)from;
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

// Loads up to kPiece columns of kTile rows, transposed; with zeros after the last row and column.
__device__ __forceinline__ void load_turned(const T* from, u32 stride, u32 rows, u32 columns, float* to) {
#pragma unroll
    for (u32 i = 0; i < kTile * kPiece / kThreads; ++i) {
        const u32 at = threadIdx.x + i * kThreads, row = at / kPiece, column = at % kPiece;
        to[column * kRow + row] = row < rows && column < columns ? widen(from[(u64)row * stride + column]) : 0.0f;
    }
}

// Sets s to the products of the rows of a, the tile's queries, and those of b, its keys.
__device__ __forceinline__ void multiply_rows(Shared& shared, const T* a, u32 a_stride, u32 a_rows, const T* b,
                                              u32 b_stride, u32 b_rows, u32 width, float (&s)[4][4]) {
    float *const turned_a = shared.pieces, *const turned_b = shared.pieces + kPiece * kRow;
#pragma unroll
    for (u32 i = 0; i < 4; ++i)
#pragma unroll
        for (u32 j = 0; j < 4; ++j) s[i][j] = 0;
    for (u32 first = 0; first < width; first += kPiece) {
        const u32 columns = least(kPiece, width - first);
        __syncthreads();
        load_turned(a + first, a_stride, a_rows, columns, turned_a);
        load_turned(b + first, b_stride, b_rows, columns, turned_b);
        __syncthreads();
#pragma unroll 1
        for (u32 column = 0; column < columns; ++column) {
            float x[4], y[4];
            load_four(turned_a + column * kRow + thread_row(), x);
            load_four(turned_b + column * kRow + thread_column(), y);
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
#pragma unroll
                for (u32 j = 0; j < 4; ++j) s[i][j] = __fmaf_rn(x[i], y[j], s[i][j]);
        }
    }
}

// Four rows of a block's result, and columns thread_column() + 64 g + j of its part of the columns.
struct Sums {
    float at[4][kGroups][4] = {};

    __device__ __forceinline__ void scale(u32 i, float factor) {
#pragma unroll
        for (u32 g = 0; g < kGroups; ++g)
#pragma unroll
            for (u32 j = 0; j < 4; ++j) at[i][g][j] *= factor;
    }
    // Adds the tile's weights times `rows` rows of x, whose columns begin where those of the result
    // do.
    __device__ __forceinline__ void add(Shared& shared, const T* x, u32 stride, u32 rows, u32 columns) {
        for (u32 first = 0; first < rows; first += kPiece) {
            __syncthreads();
#pragma unroll
            for (u32 i = 0; i < kPiece * kColumns / kThreads; ++i) {
                const u32 place = threadIdx.x + i * kThreads, row = first + place / kColumns, column = place % kColumns;
                shared.pieces[place] = row < rows && column < columns ? widen(x[(u64)row * stride + column]) : 0.0f;
            }
            __syncthreads();
            const u32 last = least(kPiece, rows - first);
#pragma unroll 1
            for (u32 row = 0; row < last; ++row) {
                float weights[4], values[4];
                load_four(shared.weights + (first + row) * kRow + thread_row(), weights);
#pragma unroll
                for (u32 g = 0; g < kGroups; ++g) {
                    load_four(shared.pieces + row * kColumns + g * kTile + thread_column(), values);
#pragma unroll
                    for (u32 i = 0; i < 4; ++i)
#pragma unroll
                        for (u32 j = 0; j < 4; ++j) at[i][g][j] = __fmaf_rn(weights[i], values[j], at[i][g][j]);
                }
            }
        }
    }
    __device__ __forceinline__ void store(T* to, u32 stride, u32 rows, u32 columns) const {
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
#pragma unroll
            for (u32 g = 0; g < kGroups; ++g)
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    const u32 row = thread_row() + i, column = g * kTile + thread_column() + j;
                    if (row < rows && column < columns) narrow(at[i][g][j], to + (u64)row * stride + column);
                }
    }
};

// Notes the dropout factors of the thread's probabilities, in the tile that begins there.
__device__ __forceinline__ void draw(Shared& shared, const Scores& scores, u32 query, u32 key) {
    if (!DROPS) return;
#pragma unroll 1
    for (u32 i = 0; i < 4; ++i) {
        const u64 number = scores.number(query + thread_row() + i, key + thread_column());
        const u32 skipped = (u32)(number % 4);
        const Philox::Block a = scores.random.block(number / 4),
                             b = skipped ? scores.random.block(number / 4 + 1) : a;
        u32 words[8] = {a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]};
#pragma unroll
        for (u32 skip = 0; skip < 3; ++skip)
#pragma unroll
            for (u32 w = 0; w < 7; ++w) words[w] = skip < skipped ? words[w + 1] : words[w];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) shared.factor(i, j) = words[j] < scores.p.dropped_below ? 0 : scores.p.kept;
    }
}

// Joins a value over the 16 threads that have a query's scores.
template <class Join>
__device__ __forceinline__ float over_row(float x, const Join& join) {
#pragma unroll
    for (u32 apart = 8; apart > 0; apart /= 2) x = join(x, __shfl_xor_sync(0xFFFFFFFFu, x, apart));
    return x;
}

// Sets s = exp(s - the query's largest score so far), and updates `top` and `total`. Returns the
// factor for earlier sums.
__device__ __forceinline__ float softmax_step(float (&s)[4], float& top, float& total) {
    const float largest = over_row(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])),
                                   [](float a, float b) { return fmaxf(a, b); });
    const float now = fmaxf(top, largest);
    const float shift = now == -infinity() ? 0 : now;  // all keys are hidden: avoids inf - inf
    float sum = 0;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) sum += s[j] = expf(s[j] - shift);
    const float factor = expf(top - shift);
    total = total * factor + over_row(sum, [](float a, float b) { return a + b; });
    top = now;
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
        float top[4] = {-infinity(), -infinity(), -infinity(), -infinity()}, total[4] = {};
        Sums sums;
        for (u32 first = 0; first < end; first += kTile) {
            const u32 rows = least(kTile, p.keys - first);
            float s[4][4];
            draw(shared, scores, unit.row, first);
            multiply_rows(shared, queries, p.q.row, unit.rows, keys + (u64)first * p.k.row, p.k.row, rows, p.width, s);
            __syncthreads();
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                const u32 query = unit.row + thread_row() + i;
#pragma unroll
                for (u32 j = 0; j < 4; ++j) s[i][j] = scores.score(query, first + thread_column() + j, s[i][j]);
                sums.scale(i, softmax_step(s[i], top[i], total[i]));
#pragma unroll
                for (u32 j = 0; j < 4; ++j) shared.weight<true>(i, j) = shared.dropped(s[i][j], i, j);
            }
            sums.add(shared, values + (u64)first * p.v.row + unit.column, p.v.row, rows, unit.columns);
        }
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            sums.scale(i, reciprocal_of(p, total[i]));
            const u32 row = thread_row() + i;
            if (row < unit.rows && unit.column == 0 && thread_column() == 0)
                lse[unit.head * p.queries + unit.row + row] = top[i] + logf(total[i]);
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
        float top[4] = {-infinity(), -infinity(), -infinity(), -infinity()}, total[4] = {};
        for (u32 first = 0; first < end; first += kTile) {
            float s[4][4];
            multiply_rows(shared, queries, p.q.row, unit.rows, keys + (u64)first * p.k.row, p.k.row,
                          least(kTile, p.keys - first), p.width, s);
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
#pragma unroll
                for (u32 j = 0; j < 4; ++j)
                    s[i][j] = scores.score(unit.row + thread_row() + i, first + thread_column() + j, s[i][j]);
                softmax_step(s[i], top[i], total[i]);
            }
        }
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            if (thread_row() + i < unit.rows && thread_column() == 0)
                shifts[row + thread_row() + i] = shift_of(p, o.lse[row + thread_row() + i], top[i], total[i]);
    }
}

// Computes the weights of a tile that begins at `query` and `key`: the gradient of the products of
// queries and keys, or the probabilities after dropout. Both are 0 after the last query, whose
// scores are minus infinity.
template <bool of_products, bool over_keys>
__device__ __forceinline__ void tile_weights(Shared& shared, const Attention& p, const Operands& o, u64 head, u32 query,
                                             u32 key) {
    const u64 row = head * p.queries + query, key_head = key_head_of(p, head);
    const u32 rows = least(kTile, p.queries - query), key_rows = least(kTile, p.keys - key);
    const Scores scores(p, head, o.masks, o.key);
    float s[4][4];
    draw(shared, scores, query, key);
    multiply_rows(shared, row_of(o.q, p.q, head, p.heads, query), p.q.row, rows,
                  row_of(o.k, p.k, key_head, p.key_heads, key), p.k.row, key_rows, p.width, s);
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        const u32 at = thread_row() + i;
        const float2 shift = at < rows ? o.shifts[row + at] : float2{};
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const float probability =
                expf(scores.score(query + at, key + thread_column() + j, s[i][j]) - shift.x - shift.y);
            shared.weight<over_keys>(i, j) = of_products ? probability : shared.dropped(probability, i, j);
        }
    }
    if (!of_products) return;
    multiply_rows(shared, row_of(o.dy, p.dy, head, p.heads, query), p.dy.row, rows,
                  row_of(o.v, p.v, key_head, p.key_heads, key), p.v.row, key_rows, p.value_width, s);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        const u32 at = thread_row() + i;
        const float dot = at < rows ? o.dots[row + at] : 0;
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            if (scores.is_replaced(query + at, key + thread_column() + j)) shared.weight<over_keys>(i, j) = 0;
            else shared.weight<over_keys>(i, j) *= (shared.dropped(s[i][j], i, j) - dot) * p.scale;
    }
}

template <bool of_products, bool over_keys>
__device__ __forceinline__ void add_tile(Sums& sums, Shared& shared, const Attention& p, const Operands& o, u64 head,
                                         u32 query, u32 key, const T* x, u32 stride, u32 rows, u32 columns) {
    tile_weights<of_products, over_keys>(shared, p, o, head, query, key);
    sums.add(shared, x, stride, rows, columns);
}
