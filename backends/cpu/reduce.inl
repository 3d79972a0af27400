// backends/cpu/reduce.inl -- the loops of reductions over rows and columns. See reduce_rows.h and
// each_isa.h.

template <class T>
void widen_block(const void* data, int64_t at, int64_t n, Computed<T>* to) {
    const T* x = static_cast<const T*>(data) + at;
    for (int64_t i = 0; i < n; ++i) to[i] = widen(x[i]);
}

// Each lane joined with its part of n contiguous elements.
template <class Op, class C>
void join_row(const C* x, int64_t n, AccOf<Op, C>* lanes) {
    using A = AccOf<Op, C>;
    constexpr int L = kChains<Op>;
    A lane[L];
    for (int j = 0; j < L; ++j) lane[j] = lanes[j];
    int64_t i = 0;
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<C, float>) {
        for (; i + 8 * L <= n; i += 8 * L)
            for (int j = 0; j < L; ++j) {
                const C* p = x + i + j;
                lane[j] += static_cast<double>(
                    tree(p[0], p[L], p[2 * L], p[3 * L], p[4 * L], p[5 * L], p[6 * L], p[7 * L]));
            }
    }
    for (; i + L <= n; i += L)
        for (int j = 0; j < L; ++j) lane[j] = Op::join(lane[j], static_cast<A>(x[i + j]));
    for (int64_t j = 0; i + j < n; ++j) lane[j] = Op::join(lane[j], static_cast<A>(x[i + j]));
    for (int j = 0; j < L; ++j) lanes[j] = lane[j];
}

// acc[c] joined with each of `rows` rows of `n` elements.
template <class Op, class C>
void join_columns(const C* x, int64_t rows, int64_t stride, int64_t n, AccOf<Op, C>* acc) {
    using A = AccOf<Op, C>;
    int64_t r = 0;
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<C, float>) {
        for (; r + 8 <= rows; r += 8) {
            const C *a = x + r * stride, *b = a + stride, *c = b + stride, *d = c + stride,
                    *e = d + stride, *f = e + stride, *g = f + stride, *h = g + stride;
            for (int64_t i = 0; i < n; ++i)
                acc[i] += static_cast<double>(tree(a[i], b[i], c[i], d[i], e[i], f[i], g[i], h[i]));
        }
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
