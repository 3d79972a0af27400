// runtime/ops/fft.cpp -- discrete Fourier transforms along the last axis: of complex numbers, and
// between real ones and the half of their spectrum whose conjugate is the other half. Rules: F1 at
// least one element along the last axis   F2 complex64 for fft and irfft, float32 for rfft   F3
// irfft: n / 2 + 1 frequencies. A gradient is d/d real + i d/d imag: the adjoint transform of the
// result's gradient. fft with `inverse` and without, and rfft and irfft of equal `twice`, are each
// other's adjoints.
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

#include <cmath>

namespace megjit::runtime {
namespace {

// Returns the extent of the last axis; checks F1 and F2.
int64_t extent_of(const OpCall& call, DType wanted) {
    const Type& x = call.inputs[0];
    if (x.rank() == 0 || x.shape[x.rank() - 1] == 0)
        refuse(call, "there is nothing to transform", "give at least one element along the axis");
    if (x.dtype != wanted)
        refuse(call, cat("the dtype is ", info(wanted).name, ", not ", info(x.dtype).name),
               "cast to float32; complex(real, imag) makes complex64", ErrorKind::type);
    return x.shape[x.rank() - 1];
}

Shape with_extent(const Shape& shape, int64_t extent) {
    Shape result = shape;
    result[shape.rank() - 1] = extent;
    return result;
}

std::vector<Type> infer_fft(const OpCall& call) {
    extent_of(call, DType::c64);
    return {call.inputs[0]};
}
std::vector<Type> infer_rfft(const OpCall& call) {
    const int64_t n = extent_of(call, DType::f32);
    return {{DType::c64, with_extent(call.inputs[0].shape, n / 2 + 1)}};
}
std::vector<Type> infer_irfft(const OpCall& call) {
    const int64_t bins = extent_of(call, DType::c64), n = call.integer("n");
    if (n < 1 || n / 2 + 1 != bins)
        refuse(call, cat(bins, " frequencies are not those of ", n, " elements"),
               cat("give n / 2 + 1 of them, or n = ", 2 * (bins - 1)));
    return {{DType::f32, with_extent(call.inputs[0].shape, n)}};
}

Grads grad_fft(const GradCall& g) {
    return {build::op("fft", {g.out_grads[0]},
                      {int64_t{!g.call.flag("inverse")}, g.call.real("scale")})};
}
Grads grad_rfft(const GradCall& g) {
    const Type& x = g.call.inputs[0];
    return {build::op("irfft", {g.out_grads[0]},
                      {x.shape[x.rank() - 1], g.call.integer("twice"), g.call.real("scale")})};
}
Grads grad_irfft(const GradCall& g) {
    return {build::op("rfft", {g.out_grads[0]}, {g.call.integer("twice"), g.call.real("scale")})};
}

Cost cost_fft(const OpCall& call, std::span<const Type> outputs) {
    const auto n = static_cast<double>(call.inputs[0].numel());
    const auto extent = static_cast<double>(call.inputs[0].shape[call.inputs[0].rank() - 1]);
    return {5 * n * std::log2(extent + 1), bytes_of(call, outputs)};
}

AttrSpec scale_attr() { return {"scale", AttrKind::real, Attr{1.0}}; }

}  // namespace

std::vector<OpDef> fft_ops() {
    return {
        {.name = "fft",
         .doc =
             "scale * sum of x[t] exp(-2 pi i k t / n) along the last axis; inverse: exp(+2 pi i k t / n), not divided by n.",
         .inputs = {"x"},
         .attrs = {{"inverse", AttrKind::integer, Attr{int64_t{0}}}, scale_attr()},
         .infer = infer_fft,
         .grad = grad_fft,
         .keeps = Keeps::nothing,
         .cost = cost_fft},
        {.name = "rfft",
         .doc =
             "fft of real numbers, frequencies 0 to n / 2; twice: those that have a conjugate counterpart are doubled.",
         .inputs = {"x"},
         .attrs = {{"twice", AttrKind::integer, Attr{int64_t{0}}}, scale_attr()},
         .infer = infer_rfft,
         .grad = grad_rfft,
         .keeps = Keeps::nothing,
         .cost = cost_fft},
        {.name = "irfft",
         .doc =
             "scale * real part of the sum of x[k] exp(2 pi i k t / n) over frequencies 0 to n / 2; twice: those that have a conjugate counterpart count twice.",
         .inputs = {"x"},
         .attrs = {{"n"}, {"twice", AttrKind::integer, Attr{int64_t{1}}}, scale_attr()},
         .infer = infer_irfft,
         .grad = grad_irfft,
         .keeps = Keeps::nothing,
         .cost = cost_fft},
    };
}

}  // namespace megjit::runtime
