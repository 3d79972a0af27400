// backends/cpu/kernels/recurrent_cells.inl -- the loops of recurrent_cells.h. It is compiled for
// several instruction sets: nothing here may be an inline function that other files share.
#include <utility>

#include "backends/cpu/kernels/recurrent_cells.h"
#include "backends/cpu/lanes.h"
#include "runtime/core/scalar_math.h"

namespace megjit::cpu::MEGJIT_LEVEL {
namespace {

namespace math = megjit::runtime::math;

F32 get(const float* from, int count) {
    return count == kLanes ? load<F32>(from) : load_some<F32>(from, count);
}
void put(float* to, F32 x, int count) {
    if (count == kLanes) store(to, x);
    else store_some(to, x, count);
}

// Calls body(i, count) for lanes i to i + count - 1 of n.
template <class Body>
void each_vector(int64_t n, const Body& body) {
    for (int64_t i = 0; i < n; i += kLanes)
        body(i, static_cast<int>(n - i < kLanes ? n - i : kLanes));
}

F32 sigmoid(F32 x) {  // as `logistic` of runtime/ops/elementwise.h
    const F32 e = math::exp(-abs(x));
    return select(x < 0.0, e, splat(1.0f)) / (e + 1.0);
}

F32 through_sigmoid(F32 y, F32 dy) { return dy * y * (1.0 - y); }
F32 through_tanh(F32 y, F32 dy) { return dy * (1.0 - y * y); }

void lstm(const LstmStep& s) {
    const int64_t hidden = s.hidden;
    for (int64_t row = 0; row < s.rows; ++row) {
        const int64_t state = row * hidden, four = 4 * state;
        each_vector(hidden, [&](int64_t j, int count) {
            F32 p[4];
            for (int64_t k = 0; k < 4; ++k) {
                const int64_t at = four + k * hidden + j;
                p[k] = get(s.gates + at, count) + get(s.product + at, count);
                p[k] = k == 2 ? math::tanh(p[k]) : sigmoid(p[k]);
                if (s.activations) put(s.activations + at, p[k], count);
            }
            const F32 c = p[1] * get(s.c_before + state + j, count) + p[0] * p[2];
            put(s.c + state + j, c, count);
            put(s.y + state + j, p[3] * math::tanh(c), count);
        });
    }
}

void lstm_grad(const LstmGradStep& s) {
    const int64_t hidden = s.hidden;
    for (int64_t row = 0; row < s.rows; ++row) {
        const int64_t state = row * hidden, four = 4 * state;
        each_vector(hidden, [&](int64_t j, int count) {
            const int64_t at = state + j;
            F32 a[4];
            for (int64_t k = 0; k < 4; ++k)
                a[k] = get(s.activations + four + k * hidden + j, count);
            const F32 squashed = math::tanh(get(s.c + at, count));
            F32 dh = get(s.dy + at, count);
            if (s.product) dh = dh + get(s.product + at, count);
            F32 dc = through_tanh(squashed, dh * a[3]);
            if (s.dc) dc = get(s.dc + at, count) + dc;
            dc = dc + get(s.carried + at, count);
            const F32 dp[4] = {through_sigmoid(a[0], dc * a[2]),
                               through_sigmoid(a[1], dc * get(s.c_before + at, count)),
                               through_tanh(a[2], dc * a[0]), through_sigmoid(a[3], dh * squashed)};
            for (int64_t k = 0; k < 4; ++k) put(s.dgates + four + k * hidden + j, dp[k], count);
            put(s.carried + at, dc * a[1], count);
        });
    }
}

void gru(const GruStep& s) {
    const int64_t hidden = s.hidden;
    for (int64_t row = 0; row < s.rows; ++row) {
        const int64_t state = row * hidden, three = 3 * state;
        each_vector(hidden, [&](int64_t j, int count) {
            const int64_t at = state + j;
            F32 p[3], q[3];
            for (int64_t k = 0; k < 3; ++k) {
                p[k] = get(s.gates + three + k * hidden + j, count);
                q[k] = get(s.product + three + k * hidden + j, count) +
                       get(s.bias + k * hidden + j, count);
            }
            const F32 r = sigmoid(p[0] + q[0]), z = sigmoid(p[1] + q[1]),
                      n = math::tanh(p[2] + r * q[2]), a[3] = {r, z, n};
            for (int64_t k = 0; k < 3; ++k)
                put(s.activations + three + k * hidden + j, a[k], count);
            put(s.scaled + at, q[2], count);
            put(s.y + at, n + z * (get(s.before + at, count) - n), count);
        });
    }
}

void gru_reset(const GruResetStep& s) {
    const int64_t hidden = s.hidden;
    for (int64_t row = 0; row < s.rows; ++row)
        each_vector(hidden, [&](int64_t j, int count) {
            const int64_t at = row * hidden + j;
            F32 gates[2];
            for (int64_t k = 0; k < 2; ++k)
                gates[k] = sigmoid(get(s.gates + (3 * row + k) * hidden + j, count) +
                                   (get(s.product + (2 * row + k) * hidden + j, count) +
                                    get(s.bias + k * hidden + j, count)));
            put(s.reset + at, gates[0] * get(s.before + at, count), count);
            put(s.z + at, gates[1], count);
        });
}

void gru_new(const GruNewStep& s) {
    const int64_t hidden = s.hidden;
    for (int64_t row = 0; row < s.rows; ++row)
        each_vector(hidden, [&](int64_t j, int count) {
            const int64_t at = row * hidden + j;
            const F32 inner = get(s.product + at, count) + get(s.bias + j, count),
                      n = math::tanh(get(s.gates + (3 * row + 2) * hidden + j, count) + inner);
            put(s.y + at, n + get(s.z + at, count) * (get(s.before + at, count) - n), count);
        });
}

void gru_grad(const GruGradStep& s) {
    const int64_t hidden = s.hidden;
    for (int64_t row = 0; row < s.rows; ++row) {
        const int64_t state = row * hidden, three = 3 * state;
        each_vector(hidden, [&](int64_t j, int count) {
            const int64_t at = state + j;
            F32 a[3];
            for (int64_t k = 0; k < 3; ++k)
                a[k] = get(s.activations + three + k * hidden + j, count);
            const F32 r = a[0], z = a[1], n = a[2];
            F32 dh = get(s.dy + at, count);
            if (s.product) dh = dh + get(s.product + at, count) + get(s.carried + at, count);
            const F32 dn = through_tanh(n, dh * (1.0 - z)),
                      dr = through_sigmoid(r, dn * get(s.scaled + at, count)),
                      dz = through_sigmoid(z, dh * (get(s.before + at, count) - n)),
                      dp[3] = {dr, dz, dn}, dq[3] = {dr, dz, dn * r};
            for (int64_t k = 0; k < 3; ++k) {
                put(s.dgates + three + k * hidden + j, dp[k], count);
                put(s.dproduct + three + k * hidden + j, dq[k], count);
            }
            put(s.carried + at, dh * z, count);
        });
    }
}

void rnn(const RnnStep& s) {
    each_vector(s.n, [&](int64_t i, int count) {
        const F32 p = get(s.gates + i, count) + get(s.product + i, count);
        put(s.y + i, s.relu ? max(p, splat(0.0f)) : math::tanh(p), count);
    });
}

void rnn_grad(const RnnGradStep& s) {
    each_vector(s.n, [&](int64_t i, int count) {
        const F32 y = get(s.y + i, count);
        F32 dh = get(s.dy + i, count);
        if (s.product) dh = dh + get(s.product + i, count);
        put(s.dgates + i, s.relu ? select(y > 0.0, dh, splat(0.0f)) : through_tanh(y, dh), count);
    });
}

// ---- products of few rows

constexpr int kSumLanes = 16, kVectors = kSumLanes / kLanes;
constexpr int kAtOnce = 8 / kVectors;  // so many sums stay in registers

// Which lane of `a` (from kLanes on: of `b`) begins, or (`second`) ends, a pair whose sum is lane
// `i`, where each vector holds groups of `size` lanes.
constexpr int lane_of_pair(int size, int i, bool second) {
    const int half = size / 2, groups = kLanes / size, group = i / half;
    return group / groups * kLanes + group % groups * size + i % half + (second ? half : 0);
}

template <int size, class V, int... i>
V halved(V a, V b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, lane_of_pair(size, i, false)...) +
           __builtin_shufflevector(a, b, lane_of_pair(size, i, true)...);
}

// Halves groups of `size` lanes of 2 * size vectors until each of kLanes sums is one lane.
template <int size, class V>
void halve(V* sums) {
    if constexpr (size > 1) {
#pragma GCC unroll 8
        for (int i = 0; i < size / 2; ++i)
            sums[i] = halved<size>(sums[2 * i], sums[2 * i + 1],
                                   std::make_integer_sequence<int, kLanes>());
        halve<size / 2>(sums);
    }
}

// The products of x with kAtOnce rows of w, by lane.
void add_products(const float* x, const float* const* rows, int64_t inner, Floats* sums) {
    F32 lanes[kAtOnce][kVectors] = {};
    int64_t k = 0;
    for (; k + kSumLanes <= inner; k += kSumLanes)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
            const F32 factor = load<F32>(x + k + v * kLanes);
#pragma GCC unroll 8
            for (int j = 0; j < kAtOnce; ++j)
                lanes[j][v] = fma(factor, load<F32>(rows[j] + k + v * kLanes), lanes[j][v]);
        }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors && k < inner; k += kLanes, ++v) {
        const int count = static_cast<int>(inner - k < kLanes ? inner - k : kLanes);
        const F32 factor = get(x + k, count);
#pragma GCC unroll 8
        for (int j = 0; j < kAtOnce; ++j)
            lanes[j][v] = fma(factor, get(rows[j] + k, count), lanes[j][v]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < kAtOnce; ++j) {
        sums[j] = lanes[j][0].v;
        for (int v = 1; v < kVectors; ++v) sums[j] = sums[j] + lanes[j][v].v;
    }
}

void few_rows(const FewRows& p) {
    const float* rows[kLanes];
    Floats sums[kLanes] = {};
    for (int64_t row = 0; row < p.rows; ++row)
        for (int64_t column = p.first; column < p.end; column += kLanes) {
            const int64_t left = p.end - column;
            const int count = static_cast<int>(left < kLanes ? left : kLanes);
            for (int j = 0; j < kLanes; ++j)  // behind the last one: the last one again
                rows[j] = p.w + (column + (j < count ? j : count - 1)) * p.inner;
            for (int j = 0; j < count; j += kAtOnce)
                add_products(p.x + row * p.inner, rows + j, p.inner, sums + j);
            halve<kLanes>(sums);
            put(p.y + row * p.columns + column, {sums[0]}, count);
        }
}

// ---- states of 8 bits

F32 within_bytes(F32 x) { return min(max(x, splat(0.0f)), splat(255.0f)); }

struct Levels {
    F32 scale, origin;
};

// The 256 numbers in equal distances between the extrema and 0.
Levels levels_between_extrema(int64_t n, const float* x) {
    F32 least = splat(0.0f), largest = least;  // load_some gives zeros
    each_vector(n, [&](int64_t i, int count) {
        const F32 part = get(x + i, count);
        least = min(least, part);
        largest = max(largest, part);
    });
    F32 low = splat(0.0f), high = low;
    for (int i = 0; i < kLanes; ++i) {
        low = min(low, splat(least.v[i]));
        high = max(high, splat(largest.v[i]));
    }
    const F32 step = (high - low) / 255.0, scale = select(eq(step, splat(0.0f)), splat(1.0f), step),
              origin = round_even(within_bytes(-(low / scale)));
    return {scale, origin};
}

F32 level_of(F32 x, const Levels& l) {
    return within_bytes(round_even(x / l.scale) + l.origin) - l.origin;
}

void round_to_8_bits(int64_t n, const float* x, float* y) {
    const Levels l = levels_between_extrema(n, x);
    each_vector(n, [&](int64_t i, int count) {
        put(y + i, level_of(get(x + i, count), l) * l.scale, count);
    });
}

ByteLevels levels_of(int64_t n, const float* x, uint8_t* levels) {
    typedef uint8_t Narrow __attribute__((vector_size(kLanes)));
    const Levels l = levels_between_extrema(n, x);
    each_vector(n, [&](int64_t i, int count) {
        const F32 level = level_of(get(x + i, count), l);
        const F32 known = select(eq(level, level), level, splat(0.0f)) + l.origin;
        const Narrow narrow = __builtin_convertvector(to_int(known).v, Narrow);
        std::memcpy(levels + i, &narrow, static_cast<size_t>(count));
    });
    return {l.scale.v[0], static_cast<int>(l.origin.v[0])};
}

// ---- products of few rows of whole numbers

// Two terms a lane: numbers of 16 bits are multiplied.
struct Pairs {
    static constexpr int kTerms = 2 * kLanes;
    static constexpr int kRows = kLanes == 16 ? 3 : 1;  // their sums stay in registers
    static constexpr bool has_origin = false;
    template <int rows>
    static constexpr int kColumns = kAtOnce;

    static Ints of_row(const uint8_t* x, int origin) {
        typedef uint8_t Terms __attribute__((vector_size(kTerms)));
        typedef int16_t Wide __attribute__((vector_size(2 * kTerms)));
        Terms terms;
        std::memcpy(&terms, x, sizeof terms);
        return (Ints)(__builtin_convertvector(terms, Wide) - static_cast<int16_t>(origin));
    }
    static Ints of_column(const int8_t* w) { return pairs_of_bytes(w); }
    static Ints add(Ints sums, Ints x, Ints w) {
        return (Ints)((Uints)sums + (Uints)pair_products(x, w));
    }
};

#if MEGJIT_LANE_COUNT == 16
// Four terms a lane: the row's are natural numbers, whose origin is taken away behind the sum.
struct Quads {
    static constexpr int kTerms = 4 * kLanes;
    static constexpr int kRows = 4;
    static constexpr bool has_origin = true;
    template <int rows>
    static constexpr int kColumns = rows == 1 ? kAtOnce : kAtOnce / 2;

    static Ints of_row(const uint8_t* x, int) { return load<Ints>(x); }
    static Ints of_column(const int8_t* w) { return load<Ints>(w); }
    static Ints add(Ints sums, Ints x, Ints w) { return add_quads(sums, x, w); }
};
#endif

// Adds the products of rows of x with columns, by lane, from term k on. Behind the rows of x comes
// one of ones where the origin is taken away later. `ahead` behind each term lies the one that the
// next call reads: no prefetcher follows so many short rows.
template <class By, int count, int columns>
__attribute__((always_inline)) inline void add_byte_products(
    const uint8_t* x, int64_t stride, int origin, const int8_t* const* rows, int64_t k,
    int64_t ahead, Ints (&sums)[count + By::has_origin][columns]) {
    Ints factors[count + By::has_origin];
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r) factors[r] = By::of_row(x + r * stride, origin);
    if constexpr (By::has_origin) factors[count] = Ints{} + 0x01010101;
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) {
        __builtin_prefetch(rows[j] + k + ahead);
        const Ints w = By::of_column(rows[j] + k);
#pragma GCC unroll 5
        for (int r = 0; r < count + By::has_origin; ++r)
            sums[r][j] = By::add(sums[r][j], factors[r], w);
    }
}

// Gives the sums of `columns` columns, which lie kLanes apart for the rows, by lane.
template <class By, int count, int columns>
void byte_products(const FewByteRows& p, const uint8_t* x, int64_t stride,
                   const int8_t* const* rows, Uints* sums) {
    const int64_t inner = p.inner;
    const int origin = p.origin;
    Ints lanes[count + By::has_origin][columns] = {};
    int64_t k = 0;
    for (; k + By::kTerms <= inner; k += By::kTerms)
        add_byte_products<By, count>(x + k, stride, origin, rows, k, columns * inner, lanes);
    if (k < inner) {
        int8_t last[columns][By::kTerms] = {};
        const int8_t* parts[columns];
        for (int j = 0; j < columns; ++j) {
            std::memcpy(last[j], rows[j] + k, static_cast<size_t>(inner - k));
            parts[j] = last[j];
        }
        add_byte_products<By, count>(x + k, stride, origin, parts, 0, 0, lanes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < count; ++r)
#pragma GCC unroll 8
        for (int j = 0; j < columns; ++j) {
            sums[r * kLanes + j] = (Uints)lanes[r][j];
            if constexpr (By::has_origin)
                sums[r * kLanes + j] -= (Uints)lanes[count][j] * static_cast<uint32_t>(origin);
        }
}

void put_sums(const FewByteRows& p, int64_t row, int64_t column, int count, Ints sums) {
    const int64_t at = row * p.columns + column;
    if (p.sums) {
        store_some(p.sums + at, I32{sums}, count);
        return;
    }
    const F32 scale = p.is_one_scale ? splat(*p.scale) : get(p.scale + column, count);
    F32 y = to_float(I32{sums}) * (scale * splat(p.step));
    if (p.shift) y = y + get(p.shift + column, count);
    put(p.y + at, y, count);
}

// Computes `columns` columns, at most kLanes, whose rows of w are given.
template <class By, int count>
void byte_rows(const FewByteRows& p, int64_t row, int64_t column, int columns,
               const int8_t* const* rows) {
    constexpr int at_once = By::template kColumns<count>;
    const int64_t stride = stride_of_byte_rows(p.inner);
    Uints sums[count * kLanes];
    for (int j = 0; j < kLanes; j += at_once)
        byte_products<By, count, at_once>(p, p.x + row * stride, stride, rows + j, sums + j);
    for (int r = 0; r < count; ++r) {
        halve<kLanes>(sums + r * kLanes);
        put_sums(p, row + r, column, columns, (Ints)sums[r * kLanes]);
    }
}

template <class By, int count>
void last_byte_rows(const FewByteRows& p, int64_t row, int64_t column, int columns,
                    const int8_t* const* rows) {
    if (p.rows - row == count) return byte_rows<By, count>(p, row, column, columns, rows);
    if constexpr (count > 1) last_byte_rows<By, count - 1>(p, row, column, columns, rows);
}

template <class By>
void few_byte_rows(const FewByteRows& p) {
    const int8_t* rows[kLanes];
    for (int64_t column = p.first; column < p.end; column += kLanes) {
        const int64_t left = p.end - column;
        const int columns = static_cast<int>(left < kLanes ? left : kLanes);
        for (int j = 0; j < kLanes; ++j)  // behind the last one: the last one again
            rows[j] = p.w + (column + (j < columns ? j : columns - 1)) * p.inner;
        int64_t row = 0;
        for (; row + By::kRows <= p.rows; row += By::kRows)
            byte_rows<By, By::kRows>(p, row, column, columns, rows);
        last_byte_rows<By, By::kRows>(p, row, column, columns, rows);
    }
}

void (*best_few_byte_rows([[maybe_unused]] bool has_vnni))(const FewByteRows&) {
#if MEGJIT_LANE_COUNT == 16
    if (has_vnni) return few_byte_rows<Quads>;
#endif
    return few_byte_rows<Pairs>;
}

}  // namespace

RecurrentCells recurrent_cells(bool has_vnni) {
    return {.levels_of = levels_of,
            .few_byte_rows = best_few_byte_rows(has_vnni),
            .round_to_8_bits = round_to_8_bits,
            .few_rows = few_rows,
            .lstm = lstm,
            .lstm_grad = lstm_grad,
            .gru = gru,
            .gru_reset = gru_reset,
            .gru_new = gru_new,
            .gru_grad = gru_grad,
            .rnn = rnn,
            .rnn_grad = rnn_grad};
}

}  // namespace megjit::cpu::MEGJIT_LEVEL
