// Weights in blocks of few bits, once an instruction set. A step has 32 elements as two lists of
// 16, so that the sums have the same bits with vectors of any width.

#include "backends/cpu/instructions.inl"

constexpr int64_t kVectors = 16 / kLanes;
struct Sixteen {
    Floats part[kVectors];
};

MEGJIT_INLINE Sixteen loaded(const float* from) {
    Sixteen made;
    for (int64_t v = 0; v < kVectors; ++v) made.part[v] = load(from + v * kLanes);
    return made;
}
MEGJIT_INLINE void stored(float* to, const Sixteen& values) {
    for (int64_t v = 0; v < kVectors; ++v) store(to + v * kLanes, values.part[v]);
}

MEGJIT_INLINE Floats scale_of(const uint8_t* block) {
    uint16_t half;
    std::memcpy(&half, block, sizeof half);
    return floats_of(Halves{} + half);
}

template <size_t... part>
MEGJIT_INLINE Sixteen sixteen_of(Bytes bytes, std::index_sequence<part...>) {
    return {{floats_of_bytes<part>(bytes)...}};
}
MEGJIT_INLINE Sixteen sixteen_of(Bytes bytes) {
    return sixteen_of(bytes, std::make_index_sequence<kVectors>());
}

// The integers of one step as floats; first_of and second_of tell where in the block they lie.
struct Integers {
    Sixteen first, second;
};
template <int bits>
MEGJIT_INLINE Integers integers(const uint8_t* block, int64_t step) {
    const uint8_t* const from = block + BlockWeights::kScaleBytes + step * 4 * bits;
    Bytes bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    if constexpr (bits == 8) {
        Bytes more;
        std::memcpy(&more, from + 16, sizeof more);
        return {sixteen_of(bytes), sixteen_of(more)};
    } else {
#if MEGJIT_LANE_COUNT == 16
        // A permutation of 16 floats takes its places from the lowest 4 bits.
        constexpr Floats kValues = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
        const Ints places = ints_of((Naturals)bytes);
        return {{{__builtin_shuffle(kValues, places)}},
                {{__builtin_shuffle(kValues, places >> 4)}}};
#else
        const Bytes low = bytes & 15, high = (Bytes)((Naturals)bytes >> 4);
        return {sixteen_of(low - 8), sixteen_of(high - 8)};
#endif
    }
}
template <int bits>
constexpr int64_t first_of(int64_t step) {
    return step * (bits == 8 ? 32 : 16);
}
template <int bits, int64_t group>
constexpr int64_t second_of(int64_t step) {
    return first_of<bits>(step) + (bits == 8 ? 16 : group / 2);
}

// Writes the values of blocks lo..hi of a row.
template <int bits, int64_t group>
void decode(const uint8_t* row, int64_t lo, int64_t hi, float* to) {
    constexpr int64_t kBytes = BlockWeights::kScaleBytes + group * bits / 8;
    for (int64_t b = lo; b < hi; ++b, to += group) {
        const uint8_t* const block = row + b * kBytes;
        const Floats scale = scale_of(block);
        for (int64_t step = 0; step < group / 32; ++step) {
            Integers values = integers<bits>(block, step);
            for (Floats& v : values.first.part) v *= scale;
            for (Floats& v : values.second.part) v *= scale;
            stored(to + first_of<bits>(step), values.first);
            stored(to + second_of<bits, group>(step), values.second);
        }
    }
}

using Four = float __attribute__((vector_size(16)));
using Ints4 = int32_t __attribute__((vector_size(16)));

// Transposes 4 x 4 numbers.
MEGJIT_INLINE void turn(Four (&a)[4]) {
    constexpr Ints4 kLow = {0, 4, 1, 5}, kHigh = {2, 6, 3, 7}, kFirst = {0, 1, 4, 5},
                    kLast = {2, 3, 6, 7};
    const Four ab_low = __builtin_shuffle(a[0], a[1], kLow),
               ab_high = __builtin_shuffle(a[0], a[1], kHigh),
               cd_low = __builtin_shuffle(a[2], a[3], kLow),
               cd_high = __builtin_shuffle(a[2], a[3], kHigh);
    a[0] = __builtin_shuffle(ab_low, cd_low, kFirst);
    a[1] = __builtin_shuffle(ab_low, cd_low, kLast);
    a[2] = __builtin_shuffle(ab_high, cd_high, kFirst);
    a[3] = __builtin_shuffle(ab_high, cd_high, kLast);
}

// Writes up to 16 rows as columns of `to`, whose rows are `step` numbers apart.
template <int bits, int64_t group>
void decode_turned(const BlockWeights& w, const uint8_t* weights, int64_t rows, float* to,
                   int64_t step) {
    float values[16][group];
    for (int64_t b = 0; b < w.blocks; ++b, to += group * step) {
        for (int64_t r = 0; r < rows; ++r)
            decode<bits, group>(weights + r * w.row_bytes(), b, b + 1, values[r]);
        const int64_t whole = rows / 4 * 4;
        for (int64_t k = 0; k < group; k += 4)
            for (int64_t r = 0; r < whole; r += 4) {
                Four a[4];
                for (int64_t i = 0; i < 4; ++i) a[i] = get<Four>(&values[r + i][k]);
                turn(a);
                for (int64_t i = 0; i < 4; ++i) put(to + (k + i) * step + r, a[i]);
            }
        for (int64_t r = whole; r < rows; ++r)
            for (int64_t k = 0; k < group; ++k) to[k * step + r] = values[r][k];
    }
}

// Memory is asked for weights so many bytes before they are read: several rows at once are more
// streams than processors follow.
constexpr int64_t kAhead = 8 << 10;

// y[m][r] = the sum over a row of weights of weight * x[m]. Each of 16 lanes adds the scaled sums
// of its elements of a block, block after block.
template <int bits, int64_t group, int64_t rows, int64_t of_x>
void dots(const BlockWeights& w, const uint8_t* weights, const float* x, int64_t x_step, float* y,
          int64_t y_step) {
    constexpr int64_t kBytes = BlockWeights::kScaleBytes + group * bits / 8;
    const int64_t row_bytes = w.blocks * kBytes;
    Sixteen sums[rows][of_x] = {};
    for (int64_t b = 0; b < w.blocks; ++b, weights += kBytes, x += group)
        for (int64_t r = 0; r < rows; ++r) {
            const uint8_t* const block = weights + r * row_bytes;
            __builtin_prefetch(block + kAhead);
            Sixteen own[of_x] = {};
            for (int64_t step = 0; step < group / 32; ++step) {
                const Integers q = integers<bits>(block, step);
                for (int64_t m = 0; m < of_x; ++m) {
                    const Sixteen first = loaded(x + m * x_step + first_of<bits>(step)),
                                  second = loaded(x + m * x_step + second_of<bits, group>(step));
                    for (int64_t v = 0; v < kVectors; ++v) {
                        own[m].part[v] += q.first.part[v] * first.part[v];
                        own[m].part[v] += q.second.part[v] * second.part[v];
                    }
                }
            }
            const Floats scale = scale_of(block);
            for (int64_t m = 0; m < of_x; ++m)
                for (int64_t v = 0; v < kVectors; ++v) sums[r][m].part[v] += scale * own[m].part[v];
        }
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t m = 0; m < of_x; ++m) {
            float lanes[16];
            stored(lanes, sums[r][m]);
            y[m * y_step + r] = joined_by_halves<8>(lanes);
        }
}

// Computes dots for rows lo..hi of the weights and all rows of x.
template <int bits, int64_t group>
void dots_of_rows(const BlockWeights& w, const uint8_t* weights, int64_t lo, int64_t hi,
                  const float* x, int64_t of_x, float* y) {
    constexpr int64_t kTogether = 4, kOfX = 2 * kLanes / 8;  // what registers hold
    const int64_t columns = w.columns(), row_bytes = w.row_bytes();
    for (int64_t r = lo; r < hi;) {
        const bool is_whole = r + kTogether <= hi;
        const int64_t end = is_whole ? r + kTogether : r + 1;
        const uint8_t* const row = weights + r * row_bytes;
        int64_t m = 0;
        for (; m + kOfX <= of_x; m += kOfX)
            for (int64_t each = r; each < end; ++each)
                dots<bits, group, 1, kOfX>(w, weights + each * row_bytes, x + m * columns, columns,
                                           y + m * w.rows + each, w.rows);
        for (; m < of_x; ++m)
            if (is_whole)
                dots<bits, group, kTogether, 1>(w, row, x + m * columns, columns,
                                                y + m * w.rows + r, w.rows);
            else
                dots<bits, group, 1, 1>(w, row, x + m * columns, columns, y + m * w.rows + r,
                                        w.rows);
        r = end;
    }
}
