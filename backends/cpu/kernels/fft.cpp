// backends/cpu/kernels/fft.cpp -- Fourier transforms of the rows of a tensor, in double.
// Stockham's passes of radix 4, 2 and small primes (Cochran et al. 1967); a length with a greater
// prime factor is a convolution of a power of two (Bluestein 1970). Real rows of an even length are
// treated as half as many complex numbers.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "backends/cpu/elements.h"

namespace megjit::cpu {
namespace {

struct Number {
    double re = 0, im = 0;
};
inline Number operator+(Number a, Number b) { return {a.re + b.re, a.im + b.im}; }
inline Number operator-(Number a, Number b) { return {a.re - b.re, a.im - b.im}; }
inline Number operator*(Number a, Number b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
inline Number operator*(double s, Number a) { return {s * a.re, s * a.im}; }
inline Number conj(Number a) { return {a.re, -a.im}; }
inline Number times_i(Number a) { return {-a.im, a.re}; }

// Returns exp(-pi i a / (2 quarter)), 0 <= a < 4 quarter. The other eighths of the circle follow
// from the first one: 0, 1 and equal parts are exact.
Number on_circle(int64_t a, int64_t quarter) {
    if (a > 2 * quarter) return conj(on_circle(4 * quarter - a, quarter));
    if (a > quarter) {
        const Number mirrored = on_circle(2 * quarter - a, quarter);
        return {-mirrored.re, mirrored.im};
    }
    if (2 * a > quarter) {
        const Number mirrored = on_circle(quarter - a, quarter);
        return {-mirrored.im, -mirrored.re};
    }
    const double angle =
        -std::numbers::pi / 2 * static_cast<double>(a) / static_cast<double>(quarter);
    return {std::cos(angle), std::sin(angle)};
}
// Returns exp(-2 pi i k / n), 0 <= k < n.
Number root(int64_t k, int64_t n) { return on_circle(4 * k, n); }

constexpr int64_t kLargestRadix = 31;

// A transform of n numbers, without scaling. `run` takes two buffers of `room()` numbers, of which
// the first has the input, and returns the one that has the result.
class Transform {
public:
    explicit Transform(int64_t n) : n_(n) {
        int64_t rest = n;
        for (const int64_t radix : {4, 2})
            for (; rest % radix == 0; rest /= radix) radices_.push_back(radix);
        for (int64_t radix = 3; radix <= kLargestRadix; radix += 2)
            for (; rest % radix == 0; rest /= radix) radices_.push_back(radix);
        if (rest > 1) prepare_convolution();
        else
            for (int64_t k = 0; k < n; ++k) roots_.push_back(root(k, n));
    }
    int64_t room() const { return longer_ ? longer_->n_ : n_; }

    Number* run(Number* x, Number* y) const {
        if (longer_) return convolve(x, y);
        int64_t stride = 1, rest = n_;
        for (const int64_t radix : radices_) {
            rest /= radix;
            if (radix == 4) pass_of_4(x, y, rest, stride);
            else if (radix == 2) pass_of_2(x, y, rest, stride);
            else if (radix == 3) pass<3>(x, y, rest, stride);
            else if (radix == 5) pass<5>(x, y, rest, stride);
            else pass(x, y, rest, stride, radix);
            stride *= radix;
            std::swap(x, y);
        }
        return x;
    }

private:
    Number turn(int64_t k) const { return roots_[static_cast<size_t>(k)]; }  // requires k < n

    void pass_of_2(const Number* x, Number* y, int64_t m, int64_t s) const {
        for (int64_t q = 0; q < m; ++q) {
            const Number w = turn(q * s);
            const Number *a = x + s * q, *b = a + s * m;
            Number* to = y + s * 2 * q;
            for (int64_t j = 0; j < s; ++j) {
                to[j] = a[j] + b[j];
                to[j + s] = w * (a[j] - b[j]);
            }
        }
    }
    void pass_of_4(const Number* x, Number* y, int64_t m, int64_t s) const {
        for (int64_t q = 0; q < m; ++q) {
            const Number w1 = turn(q * s), w2 = turn(2 * q * s), w3 = turn(3 * q * s);
            const Number *a = x + s * q, *b = a + s * m, *c = b + s * m, *d = c + s * m;
            Number* to = y + s * 4 * q;
            for (int64_t j = 0; j < s; ++j) {
                const Number even = a[j] + c[j], odd = b[j] + d[j], across = a[j] - c[j],
                             turned = times_i(b[j] - d[j]);
                to[j] = even + odd;
                to[j + s] = w1 * (across - turned);
                to[j + 2 * s] = w2 * (even - odd);
                to[j + 3 * s] = w3 * (across + turned);
            }
        }
    }
    // kRadix is known at compile time, or 0: then the call passes it.
    template <int kRadix = 0>
    void pass(const Number* x, Number* y, int64_t m, int64_t s, int64_t any = kRadix) const {
        const int64_t radix = kRadix ? kRadix : any;
        Number of_radix[kLargestRadix], w[kLargestRadix], a[kLargestRadix];
        for (int64_t r = 0; r < radix; ++r) of_radix[r] = turn(r * m * s);
        for (int64_t q = 0; q < m; ++q) {
            for (int64_t k = 0; k < radix; ++k) w[k] = turn(q * k * s);
            const Number* from = x + s * q;
            Number* to = y + s * radix * q;
            for (int64_t j = 0; j < s; ++j) {
                for (int64_t r = 0; r < radix; ++r) a[r] = from[j + s * m * r];
                for (int64_t k = 0; k < radix; ++k) {
                    Number sum = a[0];
                    for (int64_t r = 1, turns = k; r < radix; ++r) {
                        sum = sum + of_radix[turns] * a[r];
                        turns = turns + k < radix ? turns + k : turns + k - radix;
                    }
                    to[j + s * k] = w[k] * sum;
                }
            }
        }
    }

    // k t = (k^2 + t^2 - (k - t)^2) / 2: with chirp[t] = exp(-pi i t^2 / n) the transform is
    // chirp times the convolution of chirp x with the conjugate of chirp.
    void prepare_convolution() {
        int64_t extent = 1;
        while (extent < 2 * n_ - 1) extent *= 2;
        longer_ = std::make_unique<const Transform>(extent);
        std::vector<Number> filter(static_cast<size_t>(extent)), spare(filter.size());
        for (int64_t t = 0; t < n_; ++t) {
            roots_.push_back(root(t * t % (2 * n_), 2 * n_));
            filter[static_cast<size_t>(t)] = conj(roots_.back());
            if (t) filter[static_cast<size_t>(extent - t)] = conj(roots_.back());
        }
        const Number* found = longer_->run(filter.data(), spare.data());
        filter_.assign(found, found + extent);
    }
    Number* convolve(Number* x, Number* y) const {
        const int64_t extent = longer_->n_;
        for (int64_t t = 0; t < n_; ++t) x[t] = roots_[static_cast<size_t>(t)] * x[t];
        std::fill(x + n_, x + extent, Number{});
        Number* spectrum = longer_->run(x, y);
        for (int64_t k = 0; k < extent; ++k)  // the inverse transform, by conjugates
            spectrum[k] = conj(spectrum[k] * filter_[static_cast<size_t>(k)]);
        Number* found = longer_->run(spectrum, spectrum == x ? y : x);
        const double share = 1.0 / static_cast<double>(extent);
        for (int64_t k = 0; k < n_; ++k)
            found[k] = roots_[static_cast<size_t>(k)] * (share * conj(found[k]));
        return found;
    }

    int64_t n_;
    std::vector<int64_t> radices_;
    std::vector<Number> roots_;  // for a convolution: the chirp
    std::unique_ptr<const Transform> longer_;
    std::vector<Number> filter_;
};

// Transforms the rows of a tensor in parts; each part has two buffers of its own.
template <class Row>  // called with (in, out, x, y)
Prepared over_rows(const OpCall& call, const Type& output, int64_t room, Row row) {
    const Shape &from = call.inputs[0].shape, &to = output.shape;
    const int64_t n = from[from.rank() - 1], rows = call.inputs[0].numel() / n,
                  step = to[to.rank() - 1];
    const int64_t parts = std::min<int64_t>(rows, 32);
    return executable([=](void* const* in, void* const* out, void* work) {
        using In = typename Row::In;
        using Out = typename Row::Out;
        const int64_t grain = std::max<int64_t>(1, 16384 * parts / (rows * n + 1));
        parallel_for(parts, grain, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t part = lo; part < hi; ++part) {
                Number* buffer = static_cast<Number*>(work) + 2 * room * part;
                for (int64_t r = rows * part / parts; r < rows * (part + 1) / parts; ++r)
                    row(static_cast<const In*>(in[0]) + r * n, static_cast<Out*>(out[0]) + r * step,
                        buffer, buffer + room);
            }
        });
    }, static_cast<size_t>(2 * room * parts) * sizeof(Number));
}

Number as_number(Complex z) {
    return {static_cast<double>(z.real()), static_cast<double>(z.imag())};
}
Complex narrowed(double scale, Number z) {
    return {static_cast<float>(scale * z.re), static_cast<float>(scale * z.im)};
}

using Plan = std::shared_ptr<const Transform>;

struct ComplexRow {
    using In = Complex;
    using Out = Complex;
    Plan plan;
    int64_t n = 0;
    bool inverse = false;
    double scale = 1;
    void operator()(const Complex* in, Complex* out, Number* x, Number* y) const {
        for (int64_t t = 0; t < n; ++t) x[t] = inverse ? conj(as_number(in[t])) : as_number(in[t]);
        const Number* found = plan->run(x, y);
        for (int64_t k = 0; k < n; ++k)
            out[k] = narrowed(scale, inverse ? conj(found[k]) : found[k]);
    }
};

// What transforms of real rows share. An even length needs a transform of n / 2 numbers, with two
// elements in each.
struct RealRow {
    Plan plan;
    std::vector<Number> roots;  // exp(-2 pi i k / n), k <= n / 2
    int64_t n = 0;
    bool twice = false;
    double scale = 1;
    bool is_even() const { return n % 2 == 0; }
    // Has frequency k a counterpart in the other half?
    bool is_inner(int64_t k) const { return k > 0 && 2 * k < n; }
    double weight(int64_t k) const { return twice && is_inner(k) ? 2 * scale : scale; }
};

struct ForthRow : RealRow {
    using In = float;
    using Out = Complex;
    void operator()(const float* in, Complex* out, Number* x, Number* y) const {
        if (!is_even()) {
            for (int64_t t = 0; t < n; ++t) x[t] = {static_cast<double>(in[t]), 0};
            const Number* found = plan->run(x, y);
            for (int64_t k = 0; 2 * k < n; ++k) out[k] = narrowed(weight(k), found[k]);
            return;
        }
        const int64_t m = n / 2;
        for (int64_t t = 0; t < m; ++t)
            x[t] = {static_cast<double>(in[2 * t]), static_cast<double>(in[2 * t + 1])};
        const Number* z = plan->run(x, y);
        for (int64_t k = 0; k <= m; ++k) {  // joins transforms of even and odd elements
            const Number a = z[k % m], b = conj(z[(m - k) % m]);
            const Number odd = roots[static_cast<size_t>(k)] * times_i(b - a);
            out[k] = narrowed(0.5 * weight(k), a + b + odd);
        }
    }
};

struct BackRow : RealRow {
    using In = Complex;
    using Out = float;
    // Returns element k of the whole spectrum, of which `in` holds one half; the other half is its
    // conjugate.
    Number at(const Complex* in, int64_t k) const {
        const Number z = as_number(in[k]);
        return is_inner(k) ? (twice ? 1 : 0.5) * z : Number{z.re, 0};
    }
    void operator()(const Complex* in, float* out, Number* x, Number* y) const {
        if (!is_even()) {
            for (int64_t k = 0; 2 * k < n; ++k) {  // conjugated for the forward transform
                x[k] = conj(at(in, k));
                if (k) x[n - k] = at(in, k);
            }
            const Number* found = plan->run(x, y);
            for (int64_t t = 0; t < n; ++t) out[t] = static_cast<float>(scale * found[t].re);
            return;
        }
        const int64_t m = n / 2;
        for (int64_t k = 0; k < m; ++k) {
            const Number a = at(in, k), b = conj(at(in, m - k));
            const Number odd = conj(roots[static_cast<size_t>(k)]) * times_i(a - b);
            x[k] = conj(a + b + odd);
        }
        const Number* z = plan->run(x, y);
        for (int64_t t = 0; t < m; ++t) {
            out[2 * t] = static_cast<float>(scale * z[t].re);
            out[2 * t + 1] = static_cast<float>(-scale * z[t].im);
        }
    }
};

template <class Row>
Row real_row(const OpCall& call, int64_t n) {
    Row row;
    row.n = n;
    row.twice = call.flag("twice");
    row.scale = call.real("scale");
    row.plan = std::make_shared<const Transform>(row.is_even() ? n / 2 : n);
    if (row.is_even())
        for (int64_t k = 0; k <= n / 2; ++k) row.roots.push_back(root(k, n));
    return row;
}

Prepared prepare_fft(const OpCall& call, std::span<const Type> outputs) {
    const Shape& shape = call.inputs[0].shape;
    const int64_t n = shape[shape.rank() - 1];
    const auto plan = std::make_shared<const Transform>(n);
    return over_rows(call, outputs[0], plan->room(),
                     ComplexRow{plan, n, call.flag("inverse"), call.real("scale")});
}
Prepared prepare_rfft(const OpCall& call, std::span<const Type> outputs) {
    const Shape& shape = call.inputs[0].shape;
    const auto row = real_row<ForthRow>(call, shape[shape.rank() - 1]);
    return over_rows(call, outputs[0], row.plan->room(), row);
}
Prepared prepare_irfft(const OpCall& call, std::span<const Type> outputs) {
    const auto row = real_row<BackRow>(call, call.integer("n"));
    return over_rows(call, outputs[0], row.plan->room(), row);
}

}  // namespace

void register_fft_kernels() {
    register_kernel("fft", prepare_fft);
    register_kernel("rfft", prepare_rfft);
    register_kernel("irfft", prepare_irfft);
}

}  // namespace megjit::cpu
