// backends/cuda/kernels/attention_scores.cu -- the common beginning of attention.cu and
// attention_tensor.cu: the problem, the part of it that a block computes, and how scores follow
// from the products of queries and keys. This text follows philox.h, whose numbers are those of the
// op dropout_mask.

using namespace megjit::runtime;

constexpr u32 kTile = 64;  // rows of a block's result, and of a tile of the other side
constexpr u32 kColumns = COLUMNS;  // columns of a block's result: 64 or 128

// MASKS are added, one after the other; where HIDES is 1, `hidden` replaces the scores that `seen`
// leaves out. Strides are 0 along axes of broadcasting.
constexpr u32 kMostMasks = 3;
struct Strides {
    i64 batch, head, query, key;
};

// Where the rows of an operand or a result lie: strides in elements. Columns are neighbours.
struct View {
    i64 batch, head, row;  // row: at most 31 bits
};

struct Attention {  // laid out as on the host
    Strides mask[kMostMasks], seen, hidden;
    View q, k, v, y, dy, dq, dk, dv;
    u32 heads, key_heads;
    u32 queries, keys, width, value_width;
    float scale, kept;  // kept: dropout's factor
    u32 dropped_below;  // words below it are dropped, if DROPS is 1
    u32 is_causal;
    u32 gives_zeros;  // if 1, a query that sees no key gets zeros; else NaN
};

struct Masks {
    const float* mask[kMostMasks];
    const u8* seen;
    const float* hidden;
};

struct Operands {
    const T *q, *k, *v, *dy;
    const float *lse, *dots;
    const float2* shifts;  // results of find_shifts
    Masks masks;
    const i32* key;  // key of dropout
};

// Returns the head of keys that serves a head of queries.
__device__ __forceinline__ u64 key_head_of(const Attention& p, u64 head) { return head / (p.heads / p.key_heads); }

__device__ __forceinline__ u32 least(u32 a, u32 b) { return a < b ? a : b; }
__device__ __forceinline__ u32 pieces_of(u32 extent, u32 size) { return (extent + size - 1) / size; }

// Returns row `row` of a head of queries or of keys, numbered through the batch, with `heads` per
// sample.
template <class Element>
__device__ __forceinline__ Element* row_of(Element* first, const View& view, u64 head, u32 heads, u32 row) {
    const u32 number = (u32)head;
    return first + number / heads * view.batch + number % heads * view.head + (u64)row * view.row;
}

// The part that a block computes: a tile of rows of one head, numbered through the batch, and a
// part of their columns.
struct Unit {
    u64 head;
    u32 row, rows, column, columns;

    __device__ __forceinline__ Unit(u32 number, u32 length, u32 width, bool last_first) {
        const u32 tiles = pieces_of(length, kTile), parts = width > 0 ? pieces_of(width, kColumns) : 1;
        const u32 of_all = number / parts, tile = of_all % tiles;
        head = of_all / tiles;
        row = (last_first ? tiles - 1 - tile : tile) * kTile;
        rows = least(kTile, length - row);
        column = number % parts * kColumns;
        columns = least(kColumns, width - column);
    }
};

// Makes the scores of one head from the products of queries and keys.
struct Scores {
    const Attention& p;
    const float *mask[MASKS ? MASKS : 1], *hidden;
    const u8* seen;
    u64 first;  // number of the head's first score among all scores
    Philox random;

    __device__ __forceinline__ Scores(const Attention& p, u64 head, const Masks& masks, const i32* key)
        : p(p), first(head * p.queries * p.keys), random(DROPS ? Philox::from_key(key) : Philox{}) {
#pragma unroll
        for (i32 m = 0; m < MASKS; ++m) mask[m] = of_head(masks.mask[m], p.mask[m], head);
        if (HIDES) seen = of_head(masks.seen, p.seen, head), hidden = of_head(masks.hidden, p.hidden, head);
    }

    __device__ __forceinline__ float score(u32 query, u32 key, float product) const {
        if (is_outside(query, key) || (p.is_causal && key > query)) return -infinity();
        float s = product * p.scale;
        // No mask is null. Without the test addresses are computed in advance, and registers spill.
#pragma unroll
        for (i32 m = 0; m < MASKS; ++m)
            if (mask[m]) s += at(mask[m], p.mask[m], query, key);
        return is_replaced(query, key) ? at(hidden, p.hidden, query, key) : s;
    }
    // A score that is replaced passes no gradient to the products: the replacement takes it.
    __device__ __forceinline__ bool is_replaced(u32 query, u32 key) const {
        return HIDES && !is_outside(query, key) && !at(seen, p.seen, query, key);
    }
    // Dropout: score `number` takes word number % 4 of block number / 4, as in the op dropout_mask.
    __device__ __forceinline__ u64 number(u32 query, u32 key) const { return first + (u64)query * p.keys + key; }

private:
    template <class Element>
    __device__ __forceinline__ const Element* of_head(const Element* all, const Strides& strides, u64 head) const {
        return all + head / p.heads * strides.batch + head % p.heads * strides.head;
    }
    template <class Element>
    static __device__ __forceinline__ Element at(const Element* from, const Strides& strides, u32 query, u32 key) {
        return from[query * strides.query + key * strides.key];
    }
    __device__ __forceinline__ bool is_outside(u32 query, u32 key) const { return query >= p.queries || key >= p.keys; }
};

// The final factor of a query's sums: 1 / total, or 0 for a query that sees no key and gets zeros.
__device__ __forceinline__ float reciprocal_of(const Attention& p, float total) {
    return p.gives_zeros && total == 0 ? 0 : 1 / total;
}

// As runtime::kRoundedLse: from here on the sums are computed again.
constexpr float kRoundedLse = 64;
__device__ __forceinline__ bool is_rounded(float lse) { return fabsf(lse) >= kRoundedLse; }
__device__ __forceinline__ bool are_rounded(const float* lse, u32 rows) {
    bool any = false;
    for (u32 i = 0; i < rows; ++i) any |= is_rounded(lse[i]);
    return any;
}
// Backward subtracts both numbers from a query's scores, one after the other: lse and 0, or where
// the sums were computed again the largest score and the logarithm of the sum. {0, 0} leaves scores
// of -inf as they are.
__device__ __forceinline__ float2 shift_of(const Attention& p, float lse, float top, float total) {
    if (p.gives_zeros && lse == -infinity()) return {0, 0};
    return is_rounded(lse) && lse != -infinity() ? float2{top, logf(total)} : float2{lse, 0};
}

// Keys from this one on are hidden from all of the queries.
__device__ __forceinline__ u32 end_of_keys(const Attention& p, u32 query, u32 queries) {
    return p.is_causal ? least(p.keys, query + queries) : p.keys;
}

// Computes dots[row] = <y[row], dy[row]> for a block's queries, summed in the order of multiply_rows
// in attention.cu: where a query sees one key alone, y is its value, and dp - dot is exactly 0.
__device__ __forceinline__ void find_dots(const Attention& p, const Unit& unit, const T* y, const T* dy, float* dots) {
    const u32 rows_at_once = blockDim.x / 16;
    for (u32 first = 0; first < unit.rows; first += rows_at_once) {
        const u32 row = first + threadIdx.x / 16;
        const bool is_row = row < unit.rows;
        const u32 query = unit.row + (is_row ? row : 0);
        const T *const own = row_of(y, p.y, unit.head, p.heads, query),
                *const other = row_of(dy, p.dy, unit.head, p.heads, query);
        float sum = 0;
        for (u32 begin = 0; begin < p.value_width; begin += 16) {
            const u32 i = begin + threadIdx.x % 16;
            const bool is_there = is_row && i < p.value_width;
            const float a = is_there ? widen(own[i]) : 0, b = is_there ? widen(other[i]) : 0;
#pragma unroll
            for (u32 lane = 0; lane < 16; ++lane)
                sum = __fmaf_rn(__shfl_sync(~0u, a, lane, 16), __shfl_sync(~0u, b, lane, 16), sum);
        }
        if (is_row && threadIdx.x % 16 == 0) dots[unit.head * p.queries + query] = sum;
    }
}
