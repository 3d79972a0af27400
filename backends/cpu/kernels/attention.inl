// backends/cpu/kernels/attention.inl -- one block of queries forward and backward: see attention.h.
// Included by each_isa.h.

#include "backends/cpu/kernels/small_product.inl"

constexpr int64_t kQueries = AttentionShape::kQueries, kKeys = AttentionShape::kKeys;

MEGJIT_INLINE int64_t in_whole_vectors(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

MEGJIT_INLINE Floats exp_of(const Floats& x) { return exp_of_negative<Floats, Ints>(x); }

// Writes to[width][wide] = scale * from[count][width], transposed, with zeros after the last row.
void turn(const float* from, int64_t count, int64_t width, float scale, float* to, int64_t wide) {
    for (int64_t column = 0; column < width; ++column) {
        for (int64_t row = 0; row < count; ++row)
            to[column * wide + row] = scale * from[row * width + column];
        for (int64_t row = count; row < wide; ++row) to[column * wide + row] = 0;
    }
}

// Sets s[r] = scale * the product of q and row r of k, summed in the same order for all instruction
// sets.
template <int kCount>
MEGJIT_INLINE void dots_of_rows(const float* q, const float* k, int64_t width, float scale,
                                float* s) {
    constexpr int64_t kWidth = AttentionShape::kWidth;
    Floats sums[kCount][kWidth / kLanes] = {};
    for (int64_t i = 0; i < width; i += kWidth)
        for (int64_t c = 0; c < kWidth / kLanes; ++c) {
            const Floats x = load(q + i + c * kLanes);
            for (int r = 0; r < kCount; ++r) sums[r][c] += x * load(k + r * width + i + c * kLanes);
        }
    for (int r = 0; r < kCount; ++r) {
        float lanes[kWidth];
        std::memcpy(lanes, sums[r], sizeof lanes);
        s[r] = scale * joined_by_halves<kWidth / 2>(lanes);
    }
}

// A block of scores: keys [key, key + keys) and the block's queries, in rows of `wide`.
struct Scores {
    const AttentionShape& shape;
    const AttentionHead& head;
    const AttentionBlock& block;
    int64_t wide, key, keys;

    // Calls body(place in s, place in the mask from `from` on) for each score of the block.
    template <class Body>
    void for_each(const AttentionShape::Strides& strides, const Body& body) const {
        const int64_t from = block.query * strides.query + key * strides.key;
        for (int64_t j = 0; j < keys; ++j)
            for (int64_t i = 0; i < block.count; ++i)
                body(j * wide + i, from + i * strides.query + j * strides.key);
    }
    void add_masks(float* s) const {
        for (int m = 0; m < shape.masks; ++m)
            for_each(shape.mask[m], [&](int64_t at, int64_t of) { s[at] += head.mask[m][of]; });
    }
    void replace_hidden(float* s) const {
        const int64_t from = block.query * shape.hidden.query + key * shape.hidden.key;
        for (int64_t j = 0; j < keys; ++j)
            for (int64_t i = 0; i < block.count; ++i)
                if (!sees(i, j))
                    s[j * wide + i] =
                        head.hidden[from + i * shape.hidden.query + j * shape.hidden.key];
    }
    bool sees(int64_t i, int64_t j) const {
        return head.seen[(block.query + i) * shape.seen.query + (key + j) * shape.seen.key];
    }
    // Where a score was replaced, the replacement takes the gradient, and the product gets none.
    void drop_gradients_of_hidden(float* ds) const {
        for (int64_t j = 0; j < keys; ++j)
            for (int64_t i = 0; i < block.count; ++i)
                if (!sees(i, j)) ds[j * wide + i] = 0;
    }
    void mask(float* s) const {
        add_masks(s);
        if (head.seen) replace_hidden(s);
    }
    // Do all elements of the block pass the test?
    template <class T, class Test>
    bool are_all(const T* from, const AttentionShape::Strides& strides, const Test& test) const {
        const int64_t rows = strides.query ? block.count : 1, columns = strides.key ? keys : 1;
        from += block.query * strides.query + key * strides.key;
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j)
                if (!test(from[i * strides.query + j * strides.key])) return false;
        return true;
    }
    // Are all scores of the block minus infinity, whatever the products? Then no key has a weight,
    // and nothing need be computed.
    bool are_hidden() const {
        const auto is_lowest = [](float x) { return x == -INFINITY; };
        if (head.seen)
            return are_all(head.seen, shape.seen, [](uint8_t seen) { return !seen; }) &&
                   are_all(head.hidden, shape.hidden, is_lowest);
        return shape.masks == 1 && are_all(head.mask[0], shape.mask[0], is_lowest);
    }
    void hide_later_keys(float* s) const {
        for (int64_t j = std::max<int64_t>(0, block.query - key + 1); j < keys; ++j)
            for (int64_t i = 0; i < std::min(wide, key + j - block.query); ++i)
                s[j * wide + i] = -INFINITY;
    }
    // Computes the scores of a single query, s[0] to s[keys - 1].
    void compute_one(float* s) const {
        const float *const q = head.q + block.query * shape.width, *const k =
                                                                       head.k + key * shape.width;
        int64_t j = 0;
        for (; j + 4 <= keys; j += 4)
            dots_of_rows<4>(q, k + j * shape.width, shape.width, shape.scale, s + j);
        for (; j < keys; ++j)
            dots_of_rows<1>(q, k + j * shape.width, shape.width, shape.scale, s + j);
    }
    void compute(const float* turned_queries, float* s) const {
        if (shape.is_one(block.count)) {  // computed as in forward, for the same bits
            float one[kKeys];
            compute_one(one);
            std::fill_n(s, keys * wide, 0.0f);
            for (int64_t j = 0; j < keys; ++j) s[j * wide] = one[j];
        } else {
            multiply({head.k + key * shape.width, shape.width, 1}, turned_queries, wide, s, wide,
                     keys, wide, shape.width, false);
        }
        mask(s);
        if (shape.is_causal) hide_later_keys(s);
    }
    // Sets the factors by which dropout multiplies each probability. A score takes word i % 4 of
    // block i / 4, as in the op dropout_mask.
    void draw(float* factors) const {
        uint32_t words[4][kKeys / 4 + 1];
        for (int64_t i = 0; i < wide; ++i) {
            if (i >= block.count) {
                for (int64_t j = 0; j < keys; ++j) factors[j * wide + i] = 0;
                continue;
            }
            const uint64_t first =
                head.first_score + static_cast<uint64_t>((block.query + i) * shape.keys + key);
            const auto skipped = static_cast<int64_t>(first % 4);
            for (int64_t b = 0; b < (skipped + keys + 3) / 4; ++b) {
                const runtime::Philox::Block four =
                    head.random.block(first / 4 + static_cast<uint64_t>(b));
                for (int w = 0; w < 4; ++w) words[w][b] = four[w];
            }
            for (int64_t j = 0; j < keys; ++j) {
                const uint32_t word = words[(skipped + j) % 4][(skipped + j) / 4];
                factors[j * wide + i] = word < shape.dropped_below ? 0 : shape.kept;
            }
        }
    }
    void scale(float* s, const float* factors) const {
        for (int64_t i = 0; i < keys * wide; i += kLanes)
            store(s + i, load(s + i) * load(factors + i));
    }
};

MEGJIT_INLINE int64_t last_key(const AttentionShape& shape, const AttentionBlock& block) {
    return shape.is_causal ? std::min(shape.keys, block.query + block.count) : shape.keys;
}

// The largest of `keys` rows; in four chains, for each comparison waits for the one before it.
MEGJIT_INLINE Floats largest(const float* s, int64_t wide, int64_t keys) {
    Floats tops[4] = {all(-INFINITY), all(-INFINITY), all(-INFINITY), all(-INFINITY)};
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4)
        for (int i = 0; i < 4; ++i) tops[i] = larger(tops[i], load(s + (j + i) * wide));
    for (; j < keys; ++j) tops[0] = larger(tops[0], load(s + j * wide));
    return larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
}

// Sets s = exp(s - the largest score so far), and updates `top` and `total` of the queries;
// earlier sums must be multiplied by `rescale`.
void softmax_step(float* s, int64_t wide, int64_t keys, float* top, float* total, float* rescale) {
    for (int64_t c = 0; c < wide; c += kLanes) {
        const Floats before = load(top + c);
        const Floats now = larger(before, largest(s + c, wide, keys));
        // Where all keys so far are hidden, 0 is subtracted: inf - inf would be NaN.
        const Floats shift = now == -INFINITY ? Floats{} : now;
        Floats sum{};
        for (int64_t j = 0; j < keys; ++j) {
            const Floats e = exp_of(load(s + j * wide + c) - shift);
            store(s + j * wide + c, e);
            sum += e;
        }
        const Floats factor = exp_of(before - shift);
        store(rescale + c, factor), store(total + c, load(total + c) * factor + sum);
        store(top + c, now);
    }
}

MEGJIT_INLINE void scale_row(float* row, int64_t n, float factor) {
    for (int64_t c = 0; c < n; c += kLanes) store(row + c, load(row + c) * factor);
}

// Divides a query's results by its total; a query that sees no key gets 0 / 0, or zeros.
MEGJIT_INLINE void finish_row(const AttentionShape& shape, float total, float* row) {
    if (shape.gives_zeros && total == 0) std::fill_n(row, shape.value_width, 0.0f);
    else scale_row(row, shape.value_width, 1 / total);
}

// Attends with a single query, as in text generation. One query fills no vector, so lanes run along
// widths and keys, and no operand is copied. Sums have one order for all instruction sets.
void attend_one(const AttentionShape& shape, const AttentionHead& head, const AttentionBlock& block,
                float* y, float* lse) {
    constexpr int64_t kAcross = 64;  // columns whose sums stay in registers
    const int64_t columns = shape.value_width, end = last_key(shape, block);
    float s[kKeys], top = -INFINITY, total = 0;
    y += block.query * columns;
    bool adds = false;
    for (int64_t key = 0; key < end; key += kKeys) {
        const Scores scores{shape, head, block, 1, key, std::min(kKeys, end - key)};
        if (scores.are_hidden()) continue;
        const float* const v = head.v + key * columns;
        scores.compute_one(s);
        scores.mask(s);
        std::fill(s + scores.keys, s + kKeys, -INFINITY);
        const Floats tops = largest(s, kLanes, kKeys / kLanes);
        float now = top;
        for (int64_t c = 0; c < kLanes; ++c) now = larger(now, tops[c]);
        const float shift = now == -INFINITY ? 0 : now;
        float parts[AttentionShape::kWidth] = {};
        for (int64_t i = 0; i < kKeys; i += kLanes) {
            const Floats e = exp_of(load(s + i) - shift);
            store(s + i, e);
            float* const part = parts + i % AttentionShape::kWidth;
            store(part, load(part) + e);
        }
        const float rescale = exp_of(all(top - shift))[0];
        total = total * rescale + joined_by_halves<AttentionShape::kWidth / 2>(parts);
        top = now;
        if (adds && rescale != 1) scale_row(y, columns, rescale);
        int64_t c = 0;
        for (; c + kAcross <= columns; c += kAcross)
            multiply_tile<1, kAcross / kLanes>({s, 0, 1}, v + c, columns, y + c, columns,
                                               scores.keys, adds);
        multiply({s, 0, 1}, v + c, columns, y + c, columns, 1, columns - c, scores.keys, adds);
        adds = true;
    }
    if (!adds) std::fill_n(y, columns, 0.0f);
    finish_row(shape, total, y);
    lse[block.query] = top + std::log(total);
}

// Computes rows of y and lse for one block. `y` and `lse` point to the head's.
void attend(const AttentionShape& shape, const AttentionHead& head, const AttentionBlock& block,
            float* y, float* lse, float* work) {
    if (shape.is_one(block.count)) return attend_one(shape, head, block, y, lse);
    const int64_t wide = in_whole_vectors(block.count), columns = shape.value_width,
                  end = last_key(shape, block);
    float *const queries = work, *const s = queries + shape.width * kQueries,
                 *const factors = s + kKeys * kQueries;
    float top[kQueries], total[kQueries] = {}, rescale[kQueries];
    std::fill_n(top, kQueries, -INFINITY);
    turn(head.q + block.query * shape.width, block.count, shape.width, shape.scale, queries, wide);
    y += block.query * columns;
    bool adds = false;
    for (int64_t key = 0; key < end; key += kKeys) {
        const Scores scores{shape, head, block, wide, key, std::min(kKeys, end - key)};
        if (scores.are_hidden()) continue;
        scores.compute(queries, s);
        softmax_step(s, wide, scores.keys, top, total, rescale);
        if (shape.dropped_below) scores.draw(factors), scores.scale(s, factors);
        if (adds)
            for (int64_t i = 0; i < block.count; ++i)
                if (rescale[i] != 1) scale_row(y + i * columns, columns, rescale[i]);
        multiply({s, 1, wide}, head.v + key * columns, columns, y, columns, block.count, columns,
                 scores.keys, adds);
        adds = true;
    }
    if (!adds) std::fill_n(y, block.count * columns, 0.0f);
    for (int64_t i = 0; i < block.count; ++i) {
        finish_row(shape, total[i], y + i * columns);
        lse[block.query + i] = top[i] + std::log(total[i]);
    }
}

// dot = the products of rows of y and of dy, summed as `multiply` sums dy v'. So where a query sees
// one key alone, y is that key's value, and dp - dot is exactly 0; a rounding error, multiplied by
// scores of a million, would be a large gradient.
void dots_of_results(const float* y, const float* turned_dy, int64_t wide, int64_t count,
                     int64_t columns, float* dot) {
    constexpr int64_t kTogether = 4;
    float tile[6 * kLanes];  // only its diagonal is needed; multiply_some has code for six rows
    for (int64_t i = 0; i < count; i += kTogether) {
        const int64_t rows = std::min(kTogether, count - i), lane = i % kLanes;
        multiply_some<1>(rows, {y + i * columns, columns, 1}, turned_dy + i - lane, wide, tile,
                         kLanes, columns, false);
        for (int64_t r = 0; r < rows; ++r) dot[i + r] = tile[r * kLanes + lane + r];
    }
}

// Sets rest = log sum exp(scores) - lse for the block's queries: the error of lse from rounding
// where lse is large, as where all keys of a query are hidden by a number like -1e9; else 0. All
// arrays are the head's.
void find_rest(const AttentionShape& shape, const AttentionHead& head, const AttentionBlock& block,
               const float* lse, float* rest, float* work) {
    lse += block.query, rest += block.query;
    std::fill_n(rest, block.count, 0.0f);
    if (std::none_of(lse, lse + block.count, AttentionShape::is_rounded)) return;
    const int64_t wide = in_whole_vectors(block.count), end = last_key(shape, block);
    float *const queries = work, *const s = queries + shape.width * kQueries;
    float top[kQueries], total[kQueries] = {}, rescale[kQueries];
    std::fill_n(top, kQueries, -INFINITY);
    turn(head.q + block.query * shape.width, block.count, shape.width, shape.scale, queries, wide);
    for (int64_t key = 0; key < end; key += kKeys) {
        const Scores scores{shape, head, block, wide, key, std::min(kKeys, end - key)};
        if (scores.are_hidden()) continue;
        scores.compute(queries, s);
        softmax_step(s, wide, scores.keys, top, total, rescale);
    }
    for (int64_t i = 0; i < block.count; ++i)
        if (AttentionShape::is_rounded(lse[i]) && lse[i] != -INFINITY)
            rest[i] = std::log(total[i]) - (lse[i] - top[i]);
}

// Turns s from scores into p, and ds from dp = dy v' into scale * p * (factors * dp - dot).
template <bool kHasRest>
void softmax_grad_step(float* s, float* ds, const float* factors, int64_t wide, int64_t keys,
                       const float* lse, const float* rest, const float* dot, float scale) {
    for (int64_t c = 0; c < wide; c += kLanes) {
        const Floats shift = load(lse + c), mean = load(dot + c);
        for (int64_t j = 0; j < keys; ++j) {
            const int64_t at = j * wide + c;
            Floats x = load(s + at) - shift;
            if (kHasRest) x -= load(rest + c);
            const Floats p = exp_of(x);
            Floats dp = load(ds + at), kept = p;
            if (factors) dp *= load(factors + at), kept = p * load(factors + at);
            store(s + at, kept);
            store(ds + at, p * (dp - mean) * scale);
        }
    }
}

// Adds the part of the gradients that comes from one block of queries and the keys [first, last).
void attend_grad(const AttentionShape& shape, const AttentionHead& head,
                 const AttentionBlock& block, const AttentionGrads& grads, int64_t first,
                 int64_t last, float* work) {
    const int64_t wide = in_whole_vectors(block.count), width = shape.width,
                  columns = shape.value_width, end = std::min(last, last_key(shape, block));
    float *const queries = work, *const turned_dy = queries + width * kQueries,
                 *const s = turned_dy + columns * kQueries, *const ds = s + kKeys * kQueries,
                 *const factors = ds + kKeys * kQueries;
    const float *const q = head.q + block.query * width, *const dy =
                                                             grads.dy + block.query * columns;
    float lse[kQueries] = {}, rest[kQueries] = {}, dot[kQueries] = {};
    bool reaches_hidden_keys = false;  // a NaN reaches them
    for (int64_t i = 0; i < block.count; ++i) {
        lse[i] = grads.lse[block.query + i];
        if (grads.rest) rest[i] = grads.rest[block.query + i];
        if (shape.gives_zeros && lse[i] == -INFINITY) lse[i] = 0;  // so are the scores: p = 0
        reaches_hidden_keys |= !(lse[i] > -INFINITY);
    }
    turn(q, block.count, width, shape.scale, queries, wide);
    turn(dy, block.count, columns, 1, turned_dy, wide);
    dots_of_results(grads.y + block.query * columns, turned_dy, wide, block.count, columns, dot);
    for (int64_t key = first; key < end; key += kKeys) {
        const Scores scores{shape, head, block, wide, key, std::min(kKeys, end - key)};
        if (!reaches_hidden_keys && scores.are_hidden()) continue;
        const int64_t keys = scores.keys;
        scores.compute(queries, s);
        multiply({head.v + key * columns, columns, 1}, turned_dy, wide, ds, wide, keys, wide,
                 columns, false);
        if (shape.dropped_below) scores.draw(factors);
        (grads.rest ? softmax_grad_step<true>
                    : softmax_grad_step<false>)(s, ds, shape.dropped_below ? factors : nullptr,
                                                wide, keys, lse, rest, dot, shape.scale);
        if (head.seen) scores.drop_gradients_of_hidden(ds);
        multiply({s, wide, 1}, dy, columns, grads.dv + key * columns, columns, keys, columns,
                 block.count, true);
        multiply({ds, wide, 1}, q, width, grads.dk + key * width, width, keys, width, block.count,
                 true);
        multiply({ds, 1, wide}, head.k + key * width, width, grads.dq + block.query * width, width,
                 block.count, width, keys, true);
    }
}
