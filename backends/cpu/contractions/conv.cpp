// backends/cpu/contractions/conv.cpp -- convolution and its gradients without oneDNN. Activations
// are row-major for kernels/window_product.h; others are converted in the workspace. Gradients of
// weights, and many convolutions of several groups, have kernels that take any layout.
#include "runtime/ops/conv.h"

#include <algorithm>

#include "backends/cpu/convert.h"
#include "backends/cpu/epilogue.h"
#include "backends/cpu/kernels/filter_gradient.h"
#include "backends/cpu/kernels/grouped_conv.h"
#include "backends/cpu/kernels/grouped_filter_gradient.h"
#include "backends/cpu/kernels/quantized_conv.h"
#include "backends/cpu/kernels/window_product.h"

namespace megjit::cpu {
namespace {

using runtime::ConvProblem;
using runtime::Layout;
using runtime::OpCall;
using runtime::Type;
using Role = runtime::ConvRole;

Type row_major(Type type) {
    type.layout = Layout::row_major;
    return type;
}

// Returns a kernel that takes float32 activations of any layout, or null.
Prepared prepare_in_lanes(const ConvProblem& p, Role role) {
    if (role != Role::filter)
        return fits_grouped_conv(p, role) ? prepare_grouped_conv(p, role) : nullptr;
    if (takes_filter_gradient(p)) return prepare_filter_gradient(p);
    return fits_grouped_filter_gradient(p) ? prepare_grouped_filter_gradient(p) : nullptr;
}

Prepared prepare(const ConvProblem& p, Role role) {
    Prepared lanes = prepare_in_lanes(p, role);
    return lanes ? lanes : prepare_window_products(p, role);
}

template <Role role>
Prepared prepare_conv(const OpCall& call, std::span<const Type> outputs) {
    const ConvProblem p = runtime::conv_problem(call, outputs, role);
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return make_zeros(outputs);
    if (Prepared lanes = prepare_in_lanes(p, role)) return lanes;
    if (Prepared converted = in_float32_like(row_major(p.x), call, outputs, prepare_conv<role>))
        return converted;
    return prepare_window_products(p, role);
}

Prepared prepare_conv_epilogue(const OpCall& call, std::span<const Type> outputs) {
    const ConvProblem p = runtime::conv_problem(call, outputs);
    if (Prepared converted = in_float32_like(row_major(p.x), call, outputs, prepare_conv_epilogue))
        return converted;
    const int64_t channels = p.y.shape[1],
                  places = p.y.numel() / std::max<int64_t>(1, p.y.shape[0] * channels);
    Prepared product = p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0
                           ? make_zeros(outputs)
                           : prepare(p, Role::forward);
    return steps_after(std::move(product), p.steps,
                       {p.y.shape[0], channels, places, channels * places});
}

Prepared prepare_relayout(const OpCall& call, std::span<const Type> outputs) {
    return executable(
        [from = call.inputs[0], to = outputs[0].layout](void* const* in, void* const* out, void*) {
        convert_layout(from, to, in[0], out[0]);
    });
}

}  // namespace

void register_conv_kernels() {
    register_kernel("conv", prepare_conv<Role::forward>);
    register_kernel("conv_epilogue", prepare_conv_epilogue);
    register_kernel("conv_backward_data", prepare_conv<Role::data>);
    register_kernel("conv_backward_filter", prepare_conv<Role::filter>);
}

void register_quantized_conv_kernels() {
    register_kernel("quantized_conv", prepare_plain_quantized_conv);
}

void register_relayout_kernels() { register_kernel("relayout", prepare_relayout); }

}  // namespace megjit::cpu
