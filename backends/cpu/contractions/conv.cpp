// backends/cpu/contractions/conv.cpp -- convolution and its gradients without oneDNN. Kernels of
// float32 take activations of any layout, but for the gradients of some weights:
// kernels/window_product.h takes row-major ones, and others are converted in the workspace.
#include "runtime/ops/conv.h"

#include <algorithm>

#include "backends/cpu/convert.h"
#include "backends/cpu/epilogue.h"
#include "backends/cpu/in_parts.h"
#include "backends/cpu/kernels/dense_conv.h"
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
    if (p.x.dtype != runtime::DType::f32) return nullptr;
    if (role != Role::filter)
        return takes_grouped_conv(p, role) ? prepare_grouped_conv(p, role)
                                           : prepare_dense_conv(p, role);
    if (takes_filter_gradient(p)) return prepare_filter_gradient(p);
    return fits_grouped_filter_gradient(p) ? prepare_grouped_filter_gradient(p) : nullptr;
}

template <Role role>
Prepared prepare_conv(const OpCall& call, std::span<const Type> outputs) {
    const ConvProblem p = runtime::conv_problem(call, outputs, role);
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return make_zeros(outputs);
    if (Prepared parts = role == Role::filter
                             ? nullptr
                             : by_images(call, outputs, {true, false}, prepare_conv<role>))
        return parts;
    if (Prepared lanes = prepare_in_lanes(p, role)) return lanes;
    if (Prepared converted = in_float32(call, outputs, prepare_conv<role>)) return converted;
    if (Prepared converted = in_float32_like(row_major(p.x), call, outputs, prepare_conv<role>))
        return converted;
    return prepare_window_products(p, role);
}

// Do the addends lie as the result does?
bool lie_alike(const OpCall& call, const ConvProblem& p) {
    return std::ranges::all_of(p.steps, [&](const runtime::EpilogueStep& step) {
        return step.kind != runtime::EpilogueKind::add ||
               call.inputs[step.operand].layout == p.y.layout;
    });
}

Prepared prepare_conv_epilogue(const OpCall& call, std::span<const Type> outputs) {
    const ConvProblem p = runtime::conv_problem(call, outputs);
    if (p.y.numel() == 0) return make_zeros(outputs);
    if (Prepared parts =
            by_images(call, outputs, with_images(call, p.steps), prepare_conv_epilogue))
        return parts;
    if (Prepared converted = in_float32(call, outputs, prepare_conv_epilogue)) return converted;
    if (!lie_alike(call, p))
        return in_float32_like(row_major(p.y), call, outputs, prepare_conv_epilogue);
    const int64_t channels = p.y.shape[1], places = p.y.numel() / (p.y.shape[0] * channels);
    const EpilogueRows rows = p.y.layout == Layout::channels_last
                                  ? EpilogueRows{p.y.shape[0] * places, channels, 1, channels}
                                  : EpilogueRows{p.y.shape[0], channels, places, channels * places};
    return steps_after(prepare_conv<Role::forward>(call, outputs), p.steps, rows);
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
