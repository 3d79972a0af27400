// backends/cpu/kernels/reduce.inl -- the loops of reductions over rows and columns. See
// reduce_rows.h and each_isa.h.

template <class T>
void widen_block(const void* data, int64_t at, int64_t n, Computed<T>* to) {
    const T* x = static_cast<const T*>(data) + at;
    for (int64_t i = 0; i < n; ++i) to[i] = widen(x[i]);
}

// Joins each lane with its part of n contiguous elements.
template <class Op, class C>
void join_row(const C* x, int64_t n, AccOf<Op, C>* lanes) {
    using A = AccOf<Op, C>;
    constexpr int L = kLanesOf<Op>;
    A lane[L];
    for (int j = 0; j < L; ++j) lane[j] = lanes[j];
    int64_t i = 0;
    if constexpr (kInChains<Op, C>) {
        for (; i + codegen::kChain * L <= n; i += codegen::kChain * L)
            for (int j = 0; j < L; ++j) {
                C chain = x[i + j];
                for (int k = 1; k < codegen::kChain; ++k) chain += x[i + k * L + j];
                lane[j] += static_cast<A>(chain);
            }
        C chains[L] = {};
        for (; i + L <= n; i += L)
            for (int j = 0; j < L; ++j) chains[j] += x[i + j];
        for (int64_t j = 0; i + j < n; ++j) chains[j] += x[i + j];
        for (int j = 0; j < L; ++j) lane[j] += static_cast<A>(chains[j]);
    } else {
        for (; i + L <= n; i += L)
            for (int j = 0; j < L; ++j) lane[j] = Op::join(lane[j], static_cast<A>(x[i + j]));
        for (int64_t j = 0; i + j < n; ++j) lane[j] = Op::join(lane[j], static_cast<A>(x[i + j]));
    }
    for (int j = 0; j < L; ++j) lanes[j] = lane[j];
}

// Sums each of `rows` rows of `length` elements that follow each other; length is below kShort, two
// elements for a lane at most. Rows go over the lanes of vectors.
template <class C, class A>
void sum_short_rows(const C* x, int64_t rows, int64_t length, A* acc) {
    constexpr int64_t L = codegen::kRowLanes, kTogether = 16;
    static_assert(kShort <= 2 * L);
    const int64_t once = std::min(length, L);
    C columns[kShort][kTogether] = {};
    A lanes[L][kTogether];
    for (int64_t first = 0; first < rows; first += kTogether) {
        const int64_t count = std::min(kTogether, rows - first);
        const C* row = x + first * length;
        for (int64_t r = 0; r < count; ++r, row += length)
            for (int64_t j = 0; j < length; ++j) columns[j][r] = row[j];
        for (int64_t j = L; j < length; ++j)
            for (int64_t r = 0; r < kTogether; ++r) columns[j - L][r] += columns[j][r];
        for (int64_t j = 0; j < once; ++j)
            for (int64_t r = 0; r < kTogether; ++r) lanes[j][r] = static_cast<A>(columns[j][r]);
        for (int64_t half = L / 2; half > 0; half /= 2)
            for (int64_t j = 0; j + half < std::min(once, 2 * half); ++j)
                for (int64_t r = 0; r < kTogether; ++r) lanes[j][r] += lanes[j + half][r];
        for (int64_t r = 0; r < count; ++r) acc[first + r] = length > 0 ? lanes[0][r] + 0.0 : 0.0;
    }
}

// acc[c] += the sum of the elements of column c in `rows` rows, rows <= kChain.
template <class C, class A>
MEGJIT_INLINE void add_chains(const C* x, int64_t rows, int64_t stride, int64_t n, A* acc) {
    C chains[kStrip];
    for (int64_t i = 0; i < n; ++i) chains[i] = x[i];
    for (int64_t r = 1; r < rows; ++r)
        for (int64_t i = 0; i < n; ++i) chains[i] += x[r * stride + i];
    for (int64_t i = 0; i < n; ++i) acc[i] += static_cast<A>(chains[i]);
}

// Joins acc[c] with each of `rows` rows of `n` elements.
template <class Op, class C>
void join_columns(const C* x, int64_t rows, int64_t stride, int64_t n, AccOf<Op, C>* acc) {
    using A = AccOf<Op, C>;
    int64_t r = 0;
    if constexpr (kInChains<Op, C>) {
        static_assert(codegen::kChain == 8);
        for (; r + 8 <= rows; r += 8) {
            const C *a = x + r * stride, *b = a + stride, *c = b + stride, *d = c + stride,
                    *e = d + stride, *f = e + stride, *g = f + stride, *h = g + stride;
            for (int64_t i = 0; i < n; ++i)
                acc[i] += static_cast<A>(a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i]);
        }
        if (r < rows) add_chains(x + r * stride, rows - r, stride, n, acc);
        return;
    }
    for (; r + 4 <= rows; r += 4) {
        const C *a = x + r * stride, *b = a + stride, *c = b + stride, *d = c + stride;
        for (int64_t i = 0; i < n; ++i)
            acc[i] = Op::join(
                Op::join(Op::join(Op::join(acc[i], static_cast<A>(a[i])), static_cast<A>(b[i])),
                         static_cast<A>(c[i])),
                static_cast<A>(d[i]));
    }
    for (; r < rows; ++r) {
        const C* a = x + r * stride;
        for (int64_t i = 0; i < n; ++i) acc[i] = Op::join(acc[i], static_cast<A>(a[i]));
    }
}

template <class Op, class C>
void join_places(const C* row, int64_t n, int32_t index, C* best, int32_t* place) {
    for (int64_t i = 0; i < n; ++i) {
        const auto v = row[i], b = best[i];
        const bool better = std::is_same_v<Op, Max> ? v > b : v < b,
                   first_nan = (v != v) & (b == b);
        best[i] = (better | first_nan) ? v : b;
        place[i] = (better | first_nan) ? index : place[i];
    }
}
