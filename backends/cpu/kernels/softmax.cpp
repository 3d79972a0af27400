// backends/cpu/kernels/softmax.cpp -- softmax and log_softmax along any axis, in float32.
// x is [outer, length, inner]: rows when inner is 1, else strips of neighbouring columns side by
// side.
#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cpu/convert.h"
#include "codegen/row_plan.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

using runtime::OpCall;
using runtime::Type;

// Handles `width` <= kStrip neighbouring columns of [length, inner].
constexpr int64_t kStrip = 64;

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/softmax.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

Prepared prepare_softmax(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (Prepared converted = in_float32_like({x.dtype, x.shape}, call, outputs, prepare_softmax))
        return converted;
    if (x.numel() == 0) return make_zeros(outputs);
    const int axis = runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; ++i) outer *= x.shape[i];
    for (int i = axis + 1; i < x.rank(); ++i) inner *= x.shape[i];
    const int64_t length = x.shape[axis];
    const bool log = call.op.name == "log_softmax";
    const int64_t strips = (inner + kStrip - 1) / kStrip,
                  grain = std::max<int64_t>(1, 8192 / (length * std::min(inner, kStrip)));
    return executable([=](void* const* in, void* const* out, void*) {
        const float* from = static_cast<const float*>(in[0]);
        float* to = static_cast<float*>(out[0]);
        runtime::parallel_for(outer * strips, grain, 1, [=](int64_t lo, int64_t hi) {
            for (int64_t part = lo; part < hi; ++part) {
                const int64_t strip = part % strips * kStrip,
                              at = part / strips * length * inner + strip;
                if (inner == 1) MEGJIT_BEST(softmax_row)(from + at, to + at, length, log);
                else
                    MEGJIT_BEST(softmax_strip)(from + at, to + at, length, inner,
                                               std::min(kStrip, inner - strip), log);
            }
        });
    });
}

}  // namespace

void register_softmax_kernels() {
    register_kernel("softmax", prepare_softmax);
    register_kernel("log_softmax", prepare_softmax);
}

}  // namespace megjit::cpu
