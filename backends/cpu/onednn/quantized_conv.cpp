// backends/cpu/onednn/quantized_conv.cpp -- 8-bit convolution: s8 or u8 activations, s8 weights,
// s32 accumulator, scale, bias, relu and saturation in one step. oneDNN computes it on CPUs with
// VNNI, which multiplies and adds exactly; on older CPUs it would have to halve the weights, and
// integer_conv.h computes it instead. Both give the same integers.
#include "backends/cpu/kernels/quantized_conv.h"
#include "backends/cpu/onednn/dnn.h"
#include "runtime/host/isa.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu {
namespace {

using dnnl::memory;
using runtime::Layout;
using runtime::OpCall;
using runtime::Type;

void add_steps(const runtime::ConvProblem& p, dnnl::primitive_attr& attr) {
    if (p.steps.empty()) return;  // a step is a relu
    dnnl::post_ops ops;
    ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(ops);
}

// Scales are per tensor, or per output channel of the weights: along axis 0, or 1 where axis 0
// counts the groups.
dnnl::primitive_attr attributes_of(const runtime::ConvProblem& p, bool per_channel) {
    dnnl::primitive_attr attr = dnn::attributes();
    const bool grouped = p.groups > 1;
    attr.set_scales_mask(DNNL_ARG_WEIGHTS, !per_channel ? 0 : grouped ? 3 : 1);
    add_steps(p, attr);
    return attr;
}

// Gives `conv` its weights as it wants them, packed when they change.
Prepared with_packing(const OpCall& call, Prepared conv, const memory::desc& dense,
                      const memory::desc& packed) {
    if (packed == dense) return conv;
    const auto reorder = [dense, packed] {
        return dnnl::reorder::primitive_desc(dnn::engine(), dense, dnn::engine(), packed,
                                             dnn::attributes());
    };
    Prepared pack = dnn::make(call, reorder,
                              {{DNNL_ARG_FROM, false, 0, dense}, {DNNL_ARG_TO, true, 0, packed}});
    return with_last_packed(std::move(conv), std::move(pack), dense.get_size(), packed.get_size());
}

Prepared prepare_product(const OpCall& call, const runtime::ConvProblem& p) {
    const auto matrix = [rows = rows_of(p)](const Type& type, memory::data_type dtype) {
        return memory::desc({rows, type.shape[1]}, dtype, memory::format_tag::ab);
    };
    const int64_t columns = p.w.shape[0], terms = p.w.shape[1];
    const auto s8 = memory::data_type::s8, f32 = memory::data_type::f32;
    const memory::desc x = matrix(p.x, dnn::data_type(p.x.dtype)),
                       y = matrix(p.y, dnn::data_type(p.y.dtype)),
                       bias({1, columns}, f32, memory::format_tag::ab),
                       scale({call.inputs[2].numel()}, f32, memory::format_tag::a),
                       dense({terms, columns}, s8, memory::format_tag::ba);
    dnnl::primitive_attr attr = dnn::attributes();
    attr.set_scales_mask(DNNL_ARG_WEIGHTS, call.inputs[2].numel() > 1 ? 2 : 0);
    add_steps(p, attr);
    const auto create = [=](const memory::desc& w) {
        return dnnl::matmul::primitive_desc(dnn::engine(), x, w, bias, y, attr);
    };
    const memory::desc any({terms, columns}, s8, memory::format_tag::any);
    const memory::desc packed = dnn::preferred([&] { return create(any); }, DNNL_ARG_WEIGHTS);
    Prepared product = dnn::make(call, [create, packed] { return create(packed); },
                                 {{DNNL_ARG_SRC, false, 0, x},
                                  {DNNL_ARG_WEIGHTS, false, 1, packed},
                                  {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, false, 2, scale},
                                  {DNNL_ARG_BIAS, false, 3, bias},
                                  {DNNL_ARG_DST, true, 0, y}});
    return with_packing(call, std::move(product), dense, packed);
}

Prepared prepare_quantized_conv(const OpCall& call, std::span<const Type> outputs) {
    const runtime::ConvProblem p = runtime::conv_problem(call, outputs);
    const Type &x = p.x, &w = p.w, &y = p.y;
    if (y.numel() == 0) return make_zeros(outputs);
    if (!runtime::has_vnni()) return prepare_plain_quantized_conv(call, outputs);
    if (Prepared few = prepare_without_packing(call, p)) return few;
    if (is_product_of_rows(p)) return prepare_product(call, p);
    const bool any_layout = x.layout == Layout::row_major && y.layout == Layout::row_major;
    const auto weights = [&](bool any) {
        return dnn::weights_of(w, p.groups, memory::data_type::s8, any);
    };
    const memory::desc dense = weights(false);
    const memory::desc bias({w.shape[0]}, memory::data_type::f32, memory::format_tag::a);
    const memory::desc scale({call.inputs[2].numel()}, memory::data_type::f32,
                             memory::format_tag::a);
    const auto create = [slides = dnn::slides_of(p.window), bias,
                         attr = attributes_of(p, call.inputs[2].numel() > 1),
                         src = dnn::activation_of(x, dnn::data_type(x.dtype), any_layout),
                         dst = dnn::activation_of(y, dnn::data_type(y.dtype), any_layout)](
                            const memory::desc& w_desc) {
        return dnnl::convolution_forward::primitive_desc(
            dnn::engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
            src, w_desc, bias, dst, slides.stride, slides.dilation, slides.padding, slides.padding,
            attr);
    };
    const memory::desc packed =
        dnn::preferred([&] { return create(weights(true)); }, DNNL_ARG_WEIGHTS);
    Prepared conv = dnn::make(call, [create, packed] { return create(packed); },
                              {{DNNL_ARG_SRC, false, 0, dnn::desc_of(x)},
                               {DNNL_ARG_WEIGHTS, false, 1, packed},
                               {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, false, 2, scale},
                               {DNNL_ARG_BIAS, false, 3, bias},
                               {DNNL_ARG_DST, true, 0, dnn::desc_of(y)}});
    return with_packing(call, std::move(conv), dense, packed);
}

}  // namespace

void register_quantized_conv_kernels() {
    register_kernel("quantized_conv", prepare_quantized_conv);
}

}  // namespace megjit::cpu
