// backends/cuda/kernels/sort.cu -- sorting by words: a word has an element's key above its place in
// the line, so that all words differ and their order is a stable order of the elements. Tiles are
// sorted by bitonic networks (Batcher 1968) in shared memory, and merged in pairs; each block finds
// its part of a merge along the merge path (Green, McColl and Bader 2012).

constexpr u32 kTile = 2048, kThreads = 256, kEach = kTile / kThreads;

// Sorts the words in `tile` in parts of `part` words, a power of two.
__device__ __forceinline__ void sort_parts(u64* tile, u32 part) {
    for (u32 size = 2; size <= part; size *= 2)
        for (u32 apart = size / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (u32 pair = threadIdx.x; pair < kTile / 2; pair += kThreads) {
                const u32 low = 2 * pair - (pair & (apart - 1)), high = low + apart;
                const u64 a = tile[low], b = tile[high];
                const bool falling = low & (part - 1) & size;
                if ((a > b) != falling) tile[low] = b, tile[high] = a;
            }
        }
    __syncthreads();
}

// Lines of n words, divided into parts: the position of word `slot` of a block's tile.
struct Slot {
    INDEX line, at;
    bool inside;
    __device__ __forceinline__ Slot(INDEX tile, u32 slot, u32 part, INDEX parts, INDEX lines, INDEX n) {
        const INDEX g = tile * (kTile / part) + slot / part;
        line = g / parts;
        at = (g - line * parts) * part + slot % part;
        inside = line < lines && at < n;
    }
};

extern "C" __global__ void sort_tiles(u32 part, INDEX parts, INDEX lines, INDEX n, INDEX tiles, u64* words) {
    __shared__ u64 tile[kTile];
    for (INDEX t = blockIdx.x; t < tiles; t += gridDim.x) {
        for (u32 s = threadIdx.x; s < kTile; s += kThreads) {
            const Slot slot(t, s, part, parts, lines, n);
            tile[s] = slot.inside ? words[slot.line * n + slot.at] : ~0ull;
        }
        sort_parts(tile, part);
        for (u32 s = threadIdx.x; s < kTile; s += kThreads) {
            const Slot slot(t, s, part, parts, lines, n);
            if (slot.inside) words[slot.line * n + slot.at] = tile[s];
        }
        __syncthreads();
    }
}

// Returns how many of the first `diagonal` words of the merged sequence come from a.
__device__ __forceinline__ i64 split_at(const u64* a, i64 na, const u64* b, i64 nb, i64 diagonal) {
    i64 low = diagonal > nb ? diagonal - nb : 0, high = diagonal < na ? diagonal : na;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (a[middle] < b[diagonal - 1 - middle]) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Merges runs of `length` words, which is a multiple of kTile, into runs of twice that.
extern "C" __global__ void merge(i64 length, INDEX lines, INDEX n, INDEX tiles, const u64* from, u64* to) {
    __shared__ u64 part[kTile];
    __shared__ i64 splits[2];
    const INDEX tiles_of_line = (n + kTile - 1) / kTile;
    for (INDEX t = blockIdx.x; t < tiles; t += gridDim.x) {
        const INDEX line = t / tiles_of_line;
        const i64 begin = (i64)(t - line * tiles_of_line) * kTile, pair = begin / (2 * length) * (2 * length),
                  left = (i64)n - pair, na = left < length ? left : length, rest = left - na,
                  nb = rest < length ? rest : length, diagonal = begin - pair,
                  end = diagonal + kTile < na + nb ? diagonal + kTile : na + nb;
        const u64 *const a = from + (i64)line * (i64)n + pair, *const b = a + length;
        if (threadIdx.x < 2) splits[threadIdx.x] = split_at(a, na, b, nb, threadIdx.x ? end : diagonal);
        __syncthreads();
        const i64 a0 = splits[0], b0 = diagonal - a0;
        const u32 of_a = (u32)(splits[1] - a0), count = (u32)(end - diagonal);
        for (u32 i = threadIdx.x; i < count; i += kThreads) part[i] = i < of_a ? a[a0 + i] : b[b0 + (i - of_a)];
        __syncthreads();
        const u32 first = threadIdx.x * kEach;
        if (first < count) {
            u32 i = (u32)split_at(part, of_a, part + of_a, count - of_a, first), j = of_a + first - i;
            u64* const out = to + (i64)line * (i64)n + begin;
            for (u32 k = first; k < first + kEach && k < count; ++k) {
                const bool takes_a = j >= count || (i < of_a && part[i] < part[j]);
                out[k] = takes_a ? part[i++] : part[j++];
            }
        }
        __syncthreads();
    }
}

// --- elements to words and back -----------------------------------------------------------------

#ifdef T
// The unsigned order of keys is that of the values; NaN is the largest, -0 equals 0.
__device__ __forceinline__ u32 key_of(float v) {
    if (v != v) return 0xFFFFFFFFu;
    const u32 bits = __float_as_uint(v + 0.0f);
    return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}
__device__ __forceinline__ u32 key_of(i32 v) { return (u32)v ^ 0x80000000u; }

// x is [outer, n, inner].
extern "C" __global__ void make_words(i64 n, i64 inner, INDEX count, u32 flip, const T* x, u64* words) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const INDEX above = i / (INDEX)inner, column = i - above * (INDEX)inner, outer = above / (INDEX)n;
        const u64 at = above - outer * (INDEX)n;
        words[((u64)outer * (u64)inner + column) * (u64)n + at] = (u64)(key_of(widen(x[i])) ^ flip) << 32 | at;
    }
}

// Takes the first k words of each line.
extern "C" __global__ void take(i64 n, i64 k, i64 inner, INDEX count, const u64* words, const T* x, T* values,
                                i32* places) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const INDEX above = i / (INDEX)inner, column = i - above * (INDEX)inner, outer = above / (INDEX)k;
        const u64 line = (u64)outer * (u64)inner + column;
        const u32 place = (u32)words[line * (u64)n + (above - outer * (INDEX)k)];
        places[i] = (i32)place;
        values[i] = x[((u64)outer * (u64)n + place) * (u64)inner + column];
    }
}
#endif
