// backends/cpu/kernels/pool.inl -- windows of pooling: planes of row-major tensors, windows of
// channels_last ones. See each_isa.h.

void max_plane(const Pooling& p, const float* x, float* y, float* line) {
    const int64_t width = p.in[2], rows = p.out[0] * p.out[1];
    for (int64_t row = 0; row < rows; ++row, y += p.out[2]) {
        const Lines l(p, row);
        over_lanes_twice(width, MEGJIT_LANES(V, w) {
            V best = get<V>(x + (l.d0 * p.in[1] + l.h0) * width + w);
            for (int64_t d = l.d0; d < l.d1; ++d)
                for (int64_t h = l.h0; h < l.h1; ++h)
                    best = larger(best, get<V>(x + (d * p.in[1] + h) * width + w));
            put(line + w, best);
        });
        float* const best = line + width;  // best of the p.span elements from each column on
        over_lanes_twice(width - p.span + 1, MEGJIT_LANES(V, w) {
            V top = get<V>(line + w);
            for (int64_t t = 1; t < p.span; ++t) top = larger(top, get<V>(line + w + t));
            put(best + w, top);
        });
        for (int64_t o = 0; o < p.out[2]; ++o) {
            const int64_t begin = p.ranges[2].begin[o], end = p.ranges[2].end[o];
            if (end - begin == p.span) {
                y[o] = best[begin];
                continue;
            }
            float top = line[begin];
            for (int64_t w = begin + 1; w < end; ++w) top = larger(top, line[w]);
            y[o] = top;
        }
    }
}

void mean_plane(const Pooling& p, const float* x, float* y, float* line) {
    const int64_t width = p.in[2], rows = p.out[0] * p.out[1];
    for (int64_t row = 0; row < rows; ++row, y += p.out[2]) {
        const Lines l(p, row);
        over_lanes_twice(width, MEGJIT_LANES(V, w) {
            V sum{};
            for (int64_t d = l.d0; d < l.d1; ++d)
                for (int64_t h = l.h0; h < l.h1; ++h)
                    sum += get<V>(x + (d * p.in[1] + h) * width + w);
            put(line + w, sum);
        });
        for (int64_t o = 0; o < p.out[2]; ++o) {
            const int64_t begin = p.ranges[2].begin[o], end = p.ranges[2].end[o];
            float sum = 0;
            for (int64_t w = begin; w < end; ++w) sum += line[w];
            y[o] = sum * p.weight(l.count * (end - begin));
        }
    }
}

void mean_grad_plane(const Pooling& p, const float* dy, float* dx, float* line) {
    const int64_t width = p.in[2], rows = p.out[0] * p.out[1];
    std::memset(dx, 0, static_cast<size_t>(p.in_size()) * sizeof(float));
    for (int64_t row = 0; row < rows; ++row, dy += p.out[2]) {
        const Lines l(p, row);
        std::memset(line, 0, static_cast<size_t>(width) * sizeof(float));
        for (int64_t o = 0; o < p.out[2]; ++o) {
            const int64_t begin = p.ranges[2].begin[o], end = p.ranges[2].end[o];
            const float share = dy[o] * p.weight(l.count * (end - begin));
            for (int64_t w = begin; w < end; ++w) line[w] += share;
        }
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h) {
                float* const to = dx + (d * p.in[1] + h) * width;
                over_lanes(width, MEGJIT_LANES(V, w) {
                    put<V>(to + w, get<V>(to + w) + get<V>(line + w));
                });
            }
    }
}

// Finds for each window the position of its first largest element in the plane: first over the
// window's rows, for each column in lines[r][w], where the lower row wins ties, then along the
// line.
void positions_of_row(const Pooling& p, const Lines& l, const float* x, float* line, int32_t* rows,
                      int32_t* columns, int32_t* positions) {
    const int64_t width = p.in[2];
    over_lanes_twice(width, MEGJIT_LANES(V, w) {
        using I = typename IndexType<V>::Type;
        const int32_t first = static_cast<int32_t>(l.d0 * p.in[1] + l.h0);
        V best = get<V>(x + first * width + w);
        I at = I{} + first;
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h) {
                const V value = get<V>(x + (d * p.in[1] + h) * width + w);
                const auto wins = beats(value, best);
                best = wins ? value : best;
                at = wins ? I{} + static_cast<int32_t>(d * p.in[1] + h) : at;
            }
        put(line + w, best);
        std::memcpy(rows + w, &at, sizeof at);
    });
    over_lanes_twice(width - p.span + 1, MEGJIT_LANES(V, w) {
        using I = typename IndexType<V>::Type;
        V best = get<V>(line + w);
        I row, column{};
        std::memcpy(&row, rows + w, sizeof row);
        for (int64_t t = 1; t < p.span; ++t) {
            const V value = get<V>(line + w + t);
            I its_row;
            std::memcpy(&its_row, rows + w + t, sizeof its_row);
            const auto equal = (value == best) | ((value != value) & (best != best));
            const auto wins = beats(value, best) | (equal & (its_row < row));
            best = wins ? value : best;
            row = wins ? its_row : row;
            column = wins ? I{} + static_cast<int32_t>(t) : column;
        }
        std::memcpy(columns + w, &column, sizeof column);
    });
    for (int64_t o = 0; o < p.out[2]; ++o) {
        const int64_t begin = p.ranges[2].begin[o], end = p.ranges[2].end[o];
        int64_t at = begin;
        if (end - begin == p.span) at += columns[begin];
        else
            for (int64_t w = begin + 1; w < end; ++w) {
                const bool equal =
                    line[w] == line[at] || (line[w] != line[w] && line[at] != line[at]);
                if (equal ? rows[w] < rows[at] : beats(line[w], line[at])) at = w;
            }
        positions[o] = static_cast<int32_t>(rows[at] * width + at);
    }
}

void max_window(const Pooling& p, const Lines& l, int64_t w0, int64_t w1, const float* x,
                float* y) {
    const float* const first = x + ((l.d0 * p.in[1] + l.h0) * p.in[2] + w0) * p.c;
    int64_t done = 0;
    // A comparison waits for the one before it: four vectors at a time halve the time.
    for (; done + 4 * kLanes <= p.c; done += 4 * kLanes) {
        const float* from = first + done;
        Floats a = load(from), b = load(from + kLanes), c = load(from + 2 * kLanes),
               e = load(from + 3 * kLanes);
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h)
                for (int64_t w = w0; w < w1; ++w) {
                    from = x + ((d * p.in[1] + h) * p.in[2] + w) * p.c + done;
                    a = larger(a, load(from)), b = larger(b, load(from + kLanes));
                    c = larger(c, load(from + 2 * kLanes)), e = larger(e, load(from + 3 * kLanes));
                }
        store(y + done, a), store(y + done + kLanes, b), store(y + done + 2 * kLanes, c),
            store(y + done + 3 * kLanes, e);
    }
    over_lanes_twice(p.c - done, MEGJIT_LANES(V, c) {
        V best = get<V>(first + done + c);
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h)
                for (int64_t w = w0; w < w1; ++w)
                    best = larger(best,
                                  get<V>(x + ((d * p.in[1] + h) * p.in[2] + w) * p.c + done + c));
        put(y + done + c, best);
    });
}

void mean_window(const Pooling& p, const Lines& l, int64_t w0, int64_t w1, const float* x,
                 float* y) {
    const float weight = p.weight(l.count * (w1 - w0));
    over_lanes_twice(p.c, MEGJIT_LANES(V, c) {
        V total{};
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h) {
                V line{};
                for (int64_t w = w0; w < w1; ++w)
                    line += get<V>(x + ((d * p.in[1] + h) * p.in[2] + w) * p.c + c);
                total += line;
            }
        put<V>(y + c, total * weight);
    });
}

void mean_grad_window(const Pooling& p, const Lines& l, int64_t w0, int64_t w1, const float* dy,
                      float* dx, int64_t channels) {
    const float weight = p.weight(l.count * (w1 - w0));
    for (int64_t d = l.d0; d < l.d1; ++d)
        for (int64_t h = l.h0; h < l.h1; ++h)
            for (int64_t w = w0; w < w1; ++w) {
                float* const to = dx + ((d * p.in[1] + h) * p.in[2] + w) * p.c;
                over_lanes(channels, MEGJIT_LANES(V, c) {
                    put<V>(to + c, get<V>(to + c) + get<V>(dy + c) * weight);
                });
            }
}

void positions_of_window(const Pooling& p, const Lines& l, int64_t w0, int64_t w1, const float* x,
                         int64_t channels, int32_t* positions) {
    over_lanes_twice(channels, MEGJIT_LANES(V, c) {
        using I = typename IndexType<V>::Type;
        const auto first = static_cast<int32_t>((l.d0 * p.in[1] + l.h0) * p.in[2] + w0);
        V best = get<V>(x + first * p.c + c);
        I at = I{} + first;
        for (int64_t d = l.d0; d < l.d1; ++d)
            for (int64_t h = l.h0; h < l.h1; ++h)
                for (int64_t w = w0; w < w1; ++w) {
                    const auto here = static_cast<int32_t>((d * p.in[1] + h) * p.in[2] + w);
                    const V value = get<V>(x + here * p.c + c);
                    const auto wins = beats(value, best);
                    best = wins ? value : best;
                    at = wins ? I{} + here : at;
                }
        std::memcpy(positions + c, &at, sizeof at);
    });
}
