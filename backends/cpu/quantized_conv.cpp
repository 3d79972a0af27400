// backends/cpu/quantized_conv.cpp -- 8-bit convolution by oneDNN: s8 or u8 activations, s8 weights, s32
// accumulator, scale, bias, relu and saturation in one primitive. CPUs with VNNI multiply and add exactly; on
// older ones oneDNN halves the weights, which costs their last bit.
#include "backends/cpu/dnn.h"
#include "runtime/ops/window.h"

namespace megjit::cpu {
namespace {

using dnn::Dims;
using dnnl::memory;
using runtime::Layout;
using runtime::OpCall;
using runtime::Type;

memory::desc activation(const Type& type, bool any_layout) {
    const auto dtype = dnn::data_type(type.dtype);
    if (any_layout) return {dnn::dims_of(type.shape), dtype, memory::format_tag::any};
    return {dnn::dims_of(type.shape), dtype, dnn::strides_of(type.shape, Layout::channels_last)};
}

// [oc, c / groups, kernel...], or with a leading axis of groups.
Dims weight_dims(const Type& w, int64_t groups) {
    Dims dims = dnn::dims_of(w.shape);
    if (groups == 1) return dims;
    dims[0] /= groups;
    dims.insert(dims.begin(), groups);
    return dims;
}

Dims dense_strides(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    return strides;
}

// Scales of the weights are per tensor, or per output channel: axis 0, and 1 where 0 counts the groups.
dnnl::primitive_attr attributes_of(const OpCall& call) {
    dnnl::primitive_attr attr = dnn::attributes();
    const bool per_channel = call.inputs[2].numel() > 1, grouped = call.integer("groups") > 1;
    attr.set_scales_mask(DNNL_ARG_WEIGHTS, !per_channel ? 0 : grouped ? 3 : 1);
    if (call.flag("relu")) {
        dnnl::post_ops ops;
        ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
        attr.set_post_ops(ops);
    }
    return attr;
}

Prepared prepare_quantized_conv(const OpCall& call, std::span<const Type> outputs) {
    const Type &x = call.inputs[0], &w = call.inputs[1], &y = outputs[0];
    if (y.numel() == 0) return make_zeros(outputs);
    const auto sizes = [&](std::string_view name, int64_t lowest) {
        const auto values = runtime::per_axis(call, name, x.rank() - 2, lowest);
        return Dims(values.begin(), values.begin() + x.rank() - 2);
    };
    const Dims stride = sizes("stride", 1), padding = sizes("padding", 0);
    Dims dilation = sizes("dilation", 1);
    for (int64_t& step : dilation) --step;  // oneDNN counts the skipped elements
    const bool any_layout = x.layout == Layout::row_major && y.layout == Layout::row_major;
    const Dims weights = weight_dims(w, call.integer("groups"));
    const memory::desc dense(weights, memory::data_type::s8, dense_strides(weights));
    const memory::desc bias({w.shape[0]}, memory::data_type::f32, memory::format_tag::a);
    const memory::desc scale({call.inputs[2].numel()}, memory::data_type::f32, memory::format_tag::a);
    const auto create = [=, attr = attributes_of(call), src = activation(x, any_layout), dst = activation(y, any_layout)] {
        const memory::desc packed(weights, memory::data_type::s8, memory::format_tag::any);
        return dnnl::convolution_forward::primitive_desc(dnn::engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
                                                         src, packed, bias, dst, stride, dilation, padding, padding, attr);
    };
    return dnn::make(call, create,
                     {{DNNL_ARG_SRC, false, 0, dnn::desc_of(x)},
                      {DNNL_ARG_WEIGHTS, false, 1, dense},
                      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, false, 2, scale},
                      {DNNL_ARG_BIAS, false, 3, bias},
                      {DNNL_ARG_DST, true, 0, dnn::desc_of(y)}});
}

}  // namespace

void register_quantized_conv_kernels() { register_kernel("quantized_conv", prepare_quantized_conv); }

}  // namespace megjit::cpu
