// backends/cuda/kernels/attention_scores.cu -- what attention.cu and attention_tensor.cu begin with: the
// problem, what a block computes of it, and what becomes of the products of queries and keys. Behind
// philox.h, whose numbers are those of the op dropout_mask.

using namespace megjit::runtime;

constexpr u32 kTile = 64;  // rows of a block's result, and of the other side that it meets at a time
constexpr u32 kColumns = COLUMNS;  // of a block's result: 64 or 128

struct Attention {  // as the host has it
    i64 mask_batch, mask_head, mask_query, mask_key;  // strides; 0 where it is broadcast
    u32 heads, key_heads;
    u32 queries, keys, width, value_width;
    float scale, kept;  // what dropout multiplies by
    u32 dropped_below;  // words below it are dropped, where DROPS is 1
    u32 is_causal;
};

struct Operands {
    const T *q, *k, *v, *dy;
    const float *lse, *dots, *mask;
    const i32* key;  // of dropout
};

__device__ __forceinline__ u32 least(u32 a, u32 b) { return a < b ? a : b; }
__device__ __forceinline__ u32 pieces_of(u32 extent, u32 size) { return (extent + size - 1) / size; }

// What a block computes: a tile of rows of one head, numbered through the batch, and a part of their
// columns.
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

// What becomes of the products of queries and keys of one head.
struct Scores {
    const Attention& p;
    const float* mask;  // null: there is none
    u64 first;  // number of its first score among all
    Philox random;

    __device__ __forceinline__ Scores(const Attention& p, u64 head, const float* mask, const i32* key)
        : p(p),
          mask(mask ? mask + head / p.heads * p.mask_batch + head % p.heads * p.mask_head : nullptr),
          first(head * p.queries * p.keys),
          random(DROPS ? Philox::from_key(key) : Philox{}) {}

    __device__ __forceinline__ float score(u32 query, u32 key, float product) const {
        if (query >= p.queries || key >= p.keys || (p.is_causal && key > query)) return -infinity();
        const float s = product * p.scale;
        return mask ? s + mask[query * p.mask_query + key * p.mask_key] : s;
    }
    // Dropout: score `number` takes word number % 4 of block number / 4, as in the op dropout_mask.
    __device__ __forceinline__ u64 number(u32 query, u32 key) const { return first + (u64)query * p.keys + key; }
};

// Keys from this one on are hidden from all of the queries.
__device__ __forceinline__ u32 end_of_keys(const Attention& p, u32 query, u32 queries) {
    return p.is_causal ? least(p.keys, query + queries) : p.keys;
}
