// quantized_conv -- convolution of 8-bit integers with a 32-bit accumulator, and its way back to 8
// bits:
//   y = saturate(round(max(acc * scale + bias, 0))), without the max unless relu is set; halves are
//   rounded to even.
// x = sx * qx, w = sw * qw and y = sy * qy are symmetric; scale = sx * sw / sy and bias = real bias
// / sy suffice: one primitive computes qy. A linear layer is the case of 1x1 kernels on 1x1
// images. Rules (cited by messages and tests):
//   Q1 x is int8 or uint8, w int8, scale and bias float32     Q2 rank 3 to 5, the same for x and w
//   Q3 groups divides the channels of both sides, and w has c / groups input channels
//   Q4 scale has 1 element or one per output channel, bias one per output channel
//   Q5 the window fits into the padded extent                 Q6 dtype is int8, uint8 or float32
#include "runtime/ops/conv.h"

namespace megjit::runtime {
namespace {

void check_types(const OpCall& call, DType y) {
    const Type &x = call.inputs[0], &w = call.inputs[1], &scale = call.inputs[2],
               &bias = call.inputs[3];
    if ((x.dtype != DType::i8 && x.dtype != DType::u8) || w.dtype != DType::i8 ||
        scale.dtype != DType::f32 || bias.dtype != DType::f32)
        refuse(call, "x is int8 or uint8, w int8, scale and bias float32",
               "quantize the operands first", ErrorKind::type);
    if (y != DType::i8 && y != DType::u8 && y != DType::f32)
        refuse(call, cat("the result cannot be ", info(y).name), "use int8, uint8 or float32",
               ErrorKind::type);
    if (x.rank() < 3 || x.rank() > 5 || w.rank() != x.rank())
        refuse(call, cat("the ranks are ", x.rank(), " and ", w.rank()),
               "both are [n or oc, c, 1 to 3 spatial axes]");
    const int64_t groups = call.integer("groups"), oc = w.shape[0];
    if (groups < 1 || w.shape[1] < 1 || x.shape[1] % groups || oc % groups ||
        w.shape[1] * groups != x.shape[1])
        refuse(call, cat("groups = ", groups, " with ", x.shape[1], " input channels, ", oc,
                         " output channels, and ", w.shape[1], " channels in the weights"));
    if ((scale.numel() != 1 && scale.numel() != oc) || bias.numel() != oc)
        refuse(call, cat("scale has ", scale.numel(), " and bias ", bias.numel(), " elements for ",
                         oc, " output channels"));
}

std::vector<Type> infer_quantized_conv(const OpCall& call) {
    const DType dtype = call.dtype("dtype");
    check_types(call, dtype);
    const Type &x = call.inputs[0], &w = call.inputs[1];
    const Window window = window_over(call, w);
    Shape y{x.shape[0], w.shape[0]};
    for (int axis = 0; axis < window.dims; ++axis) {
        const int64_t places = window.kernel[axis] < 1 ? 0 : window.places(axis, x.shape[axis + 2]);
        if (places < 1)
            refuse(
                call,
                cat("a kernel of ", window.kernel[axis], " does not fit into ", x.shape[axis + 2],
                    " + 2 * ", window.padding[axis], " of spatial axis ", axis),
                "enlarge the input or the padding");
        y.push_back(places);
    }
    return {{dtype, y, x.layout}};
}

// Without pixels channels lie together in either order.
bool has_pixels(const OpCall& call, std::span<const Type>) {
    const Type& x = call.inputs[0];
    return x.numel() != x.shape[0] * x.shape[1];
}

}  // namespace

OpDef quantized_conv() {
    return {
        .name = "quantized_conv",
        .doc =
            "Convolution of int8 x [n, c, spatial...] with int8 w [oc, c / groups, kernel...]: round(acc * scale + bias), saturated.",
        .inputs = {{"x", OperandKind::activation}, "w", "scale", "bias"},
        .attrs = {{"stride", AttrKind::integers, Attr{std::vector<int64_t>{1}}},
                  {"padding", AttrKind::integers, Attr{std::vector<int64_t>{0}}},
                  {"dilation", AttrKind::integers, Attr{std::vector<int64_t>{1}}},
                  {"groups", AttrKind::integer, Attr{int64_t{1}}},
                  {"relu", AttrKind::integer, Attr{int64_t{0}}},
                  {"dtype", AttrKind::text, Attr{std::string("int8")}}},
        .infer = infer_quantized_conv,
        .prefers_channels_last = has_pixels,
        .cost =
            [](const OpCall& call, std::span<const Type> outputs) {
        return Cost{conv_flops(outputs[0], call.inputs[1]), bytes_of(call, outputs), true};
    },
    };
}

}  // namespace megjit::runtime
