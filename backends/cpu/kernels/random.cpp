// backends/cpu/kernels/random.cpp -- random kernels. Element i of uniform, normal and dropout takes
// word i % 4 of block i / 4; an element of the other distributions draws from blocks of its own,
// numbered in the high half of the block index. So the numbers follow from key and place, whatever
// the number of threads.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backends/cpu/elements.h"
#include "runtime/ops/distributions.h"
#include "runtime/ops/dropout.h"

namespace megjit::cpu { namespace {

constexpr int64_t kBatch = 256;  // the words of kBatch blocks are made at once

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/random.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

using runtime::cat;
using runtime::Philox;

constexpr int64_t kGrain = 8192;

// Calls emit(words, blocks, y, n) for batches of blocks; n may end inside the last block.
template <class Emit>
void over_batches(const void* key, float* y, int64_t n, const Emit& emit) {
    const Philox g = Philox::from_key(static_cast<const int32_t*>(key));
    parallel_for(n, kGrain, 4 * kBatch, [&](int64_t lo, int64_t hi) {
        uint32_t words[4][kBatch];
        for (; lo < hi; lo += 4 * kBatch) {
            const int64_t count = std::min(4 * kBatch, hi - lo), blocks = (count + 3) / 4;
            MEGJIT_BEST(make_words)(g, static_cast<uint64_t>(lo / 4), blocks, words);
            emit(words, blocks, y + lo, count);
        }
    });
}

// Computes value(word) for each element.
template <class Value>
[[gnu::always_inline]] inline void spread_words(uint32_t (*words)[kBatch], int64_t blocks, float* y,
                                                int64_t n, const Value& value) {
    const int64_t whole = n / 4;
    for (int64_t i = 0; i < whole; ++i)
        for (int j = 0; j < 4; ++j) y[4 * i + j] = value(words[j][i]);
    if (whole < blocks)
        for (int64_t j = 0; 4 * whole + j < n; ++j) y[4 * whole + j] = value(words[j][whole]);
}

Prepared prepare_uniform(const OpCall&, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel();
    return executable([=](void* const* in, void* const* out, void*) {
        over_batches(in[0], static_cast<float*>(out[0]), n,
                     [](uint32_t(*words)[kBatch], int64_t blocks, float* y, int64_t count) {
            spread_words(words, blocks, y, count,
                         [](uint32_t w) { return runtime::unit_float(w); });
        });
    });
}

Prepared prepare_dropout_mask(const OpCall& call, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel();
    const runtime::Dropout dropout(call.real("drop_prob"));
    return executable([=](void* const* in, void* const* out, void*) {
        over_batches(in[0], static_cast<float*>(out[0]), n,
                     [=](uint32_t(*words)[kBatch], int64_t blocks, float* y, int64_t count) {
            spread_words(words, blocks, y, count,
                         [=](uint32_t w) { return w < dropout.below ? 0.0f : dropout.kept; });
        });
    });
}

// --- normal ---------------------------------------------------------------------------------

Prepared prepare_normal(const OpCall&, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel();
    return executable([=](void* const* in, void* const* out, void*) {
        over_batches(in[0], static_cast<float*>(out[0]), n,
                     [](uint32_t(*words)[kBatch], int64_t blocks, float* y, int64_t count) {
            float made[4][kBatch];
            MEGJIT_BEST(box_muller)(words[0], words[1], blocks, made[0], made[1]);
            MEGJIT_BEST(box_muller)(words[2], words[3], blocks, made[2], made[3]);
            const int64_t whole = count / 4;
            for (int64_t i = 0; i < whole; ++i)
                for (int j = 0; j < 4; ++j) y[4 * i + j] = made[j][i];
            for (int64_t j = 0; 4 * whole + j < count; ++j) y[4 * whole + j] = made[j][whole];
        });
    });
}

// --- distributions by rejection -------------------------------------------------------------

using runtime::Draws;

template <float (*Number)(const Philox&, int64_t, float, float)>
Prepared prepare_pairs(const OpCall&, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel();
    return executable([=](void* const* in, void* const* out, void*) {
        const Philox g = Philox::from_key(static_cast<const int32_t*>(in[0]));
        const float *a = static_cast<const float*>(in[1]), *b = static_cast<const float*>(in[2]);
        float* y = static_cast<float*>(out[0]);
        parallel_for(n, 256, 16, [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) y[i] = Number(g, i, a[i], b[i]);
        });
    });
}

Prepared prepare_poisson(const OpCall&, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel();
    return executable([=](void* const* in, void* const* out, void*) {
        const Philox g = Philox::from_key(static_cast<const int32_t*>(in[0]));
        const float* rate = static_cast<const float*>(in[1]);
        float* y = static_cast<float*>(out[0]);
        parallel_for(n, 256, 16, [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) y[i] = runtime::poisson_number(g, i, rate[i]);
        });
    });
}

// --- permutations and choices ---------------------------------------------------------------

// A place in [0, n) from 64 bits; off by less than n / 2^64.
uint32_t place_below(uint32_t n, uint32_t high, uint32_t low) {
    return static_cast<uint32_t>((uint64_t{high} * n + (uint64_t{low} * n >> 32)) >> 32);
}

Prepared prepare_permutation(const OpCall&, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel();
    return executable([=](void* const* in, void* const* out, void*) {
        const Philox g = Philox::from_key(static_cast<const int32_t*>(in[0]));
        int32_t* y = static_cast<int32_t*>(out[0]);
        std::iota(y, y + n, 0);
        uint32_t words[4][kBatch];
        for (int64_t i = n - 1, step = 0; i > 0; --i, ++step) {  // each block serves two steps
            const int64_t within = step % (2 * kBatch);
            if (within == 0)
                MEGJIT_BEST(make_words)(g, static_cast<uint64_t>(step / 2), kBatch, words);
            const int64_t pair = 2 * (within & 1), at = within / 2;
            std::swap(
                y[i],
                y[place_below(static_cast<uint32_t>(i + 1), words[pair][at], words[pair + 1][at])]);
        }
    });
}

void check_weights(const float* weight, int64_t row, int64_t n, int64_t least) {
    int64_t positive = 0;
    for (int64_t i = 0; i < n; ++i) {
        if (!(weight[i] >= 0) || std::isinf(weight[i]))
            runtime::user_error(
                {.what = cat("random_multinomial: weight ", i, " of row ", row, " is ", weight[i]),
                 .fix = "weights are finite and not negative"});
        positive += weight[i] > 0;
    }
    if (positive < least)
        runtime::user_error({.what = cat("random_multinomial: row ", row, " has ", positive,
                                         " positive weights for ", least, " samples"),
                             .fix = "draw fewer, or with replacement"});
}

// With replacement: each choice takes one uniform number, which is looked up in the cumulative
// weights.
void choose_again(const Philox& g, const float* weight, int64_t n, int64_t first, int64_t samples,
                  int32_t* y, double* total) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) total[i] = sum += static_cast<double>(weight[i]);
    for (int64_t k = 0; k < samples; ++k) {
        const double u = Draws(g, first + k).uniform() * sum;
        int64_t at = std::upper_bound(total, total + n, u) - total;
        while (at >= n || weight[at] == 0) --at;
        y[k] = static_cast<int32_t>(at);
    }
}

// Without replacement: exponential numbers with the weights as rates have the order of successive
// draws.
void choose_once(const Philox& g, const float* weight, int64_t n, int64_t first, int64_t samples,
                 int32_t* y, double* arrival) {
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = 0; i < n; ++i)
        arrival[i] = weight[i] > 0 ? -runtime::log_of(Draws(g, first + i).uniform()) /
                                         static_cast<double>(weight[i])
                                   : std::numeric_limits<double>::infinity();
    std::partial_sort(order.begin(), order.begin() + samples, order.end(),
                      [=](int32_t a, int32_t b) {
        return arrival[a] != arrival[b] ? arrival[a] < arrival[b] : a < b;
    });
    std::copy_n(order.begin(), samples, y);
}

Prepared prepare_multinomial(const OpCall& call, std::span<const Type> outputs) {
    const Shape& w = call.inputs[1].shape;
    const int64_t n = w[w.rank() - 1], rows = w.numel() / n, samples = call.integer("num_samples");
    const bool again = call.flag("replacement");
    (void)outputs;
    return executable([=](void* const* in, void* const* out, void* work) {
        const Philox g = Philox::from_key(static_cast<const int32_t*>(in[0]));
        const float* weight = static_cast<const float*>(in[1]);
        int32_t* y = static_cast<int32_t*>(out[0]);
        for (int64_t r = 0; r < rows; ++r) check_weights(weight + r * n, r, n, again ? 1 : samples);
        for (int64_t r = 0; r < rows; ++r) {
            if (again)
                choose_again(g, weight + r * n, n, r * samples, samples, y + r * samples,
                             static_cast<double*>(work));
            else
                choose_once(g, weight + r * n, n, r * n, samples, y + r * samples,
                            static_cast<double*>(work));
        }
    }, static_cast<size_t>(n) * sizeof(double));
}

}  // namespace

void register_random_kernels() {
    register_kernel("random_uniform", prepare_uniform);
    register_kernel("random_normal", prepare_normal);
    register_kernel("dropout_mask", prepare_dropout_mask);
    register_kernel("random_gamma", prepare_pairs<runtime::gamma_number>);
    register_kernel("random_beta", prepare_pairs<runtime::beta_number>);
    register_kernel("random_poisson", prepare_poisson);
    register_kernel("random_permutation", prepare_permutation);
    register_kernel("random_multinomial", prepare_multinomial);
}

}  // namespace megjit::cpu
