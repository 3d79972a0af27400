// backends/cuda/kernels/quantized_conv.cpp -- convolution of 8-bit integers.
#include <array>

#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/kernels/texts.h"
#include "codegen/strides.h"
#include "runtime/ops/conv.h"

namespace megjit::cuda {
namespace {

struct Conv {  // laid out as in the kernel
    int64_t x_strides[5] = {};
    int32_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1},
            padding[3] = {}, dilation[3] = {1, 1, 1};
    int32_t channels = 0, group_out = 0, out_channels = 0, scales = 0, rectifies = 0;

    Conv(const runtime::ConvProblem& p, int64_t scale_count)
        : channels(static_cast<int32_t>(p.w.shape[1])),
          group_out(static_cast<int32_t>(p.w.shape[0] / p.groups)),
          out_channels(static_cast<int32_t>(p.w.shape[0])),
          scales(static_cast<int32_t>(scale_count)),
          rectifies(!p.steps.empty()) {
        const std::vector<int64_t> strides = codegen::dense_strides(p.x);
        x_strides[0] = strides[0], x_strides[1] = strides[1];
        for (int axis = 0; axis < p.window.dims; ++axis) {
            const int at = 3 - p.window.dims + axis;  // axes that the tensor lacks have extent 1
            const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
            const auto own = static_cast<size_t>(axis);
            x_strides[at + 2] = strides[own + 2];
            in[at] = number(p.x.shape[axis + 2]);
            out[at] = number(p.y.shape[axis + 2]);
            kernel[at] = number(p.window.kernel[own]);
            stride[at] = number(p.window.stride[own]);
            padding[at] = number(p.window.padding[own]);
            dilation[at] = number(p.window.dilation[own]);
        }
    }
};

Prepared prepare_quantized_conv(CudaDevice& device, const OpCall& call,
                                std::span<const Type> outputs) {
    const runtime::ConvProblem p = runtime::conv_problem(call, outputs);
    const int64_t n = p.y.numel();
    if (n == 0) return nothing_to_do();
    const Conv conv(p, call.inputs[2].numel());
    // Words of four channels begin at multiples of 4 bytes, as the tensors do.
    const int64_t* const strides = conv.x_strides;
    bool by_fours = strides[1] == 1 && conv.channels % 4 == 0 && strides[0] % 4 == 0;
    for (int axis = 0; axis < 3; ++axis)
        by_fours = by_fours && (conv.in[axis] == 1 || strides[axis + 2] % 4 == 0);
    const SourceKernel kernel(
        device.gpu(), with_prelude(texts::quantized_conv), "quantized_conv",
        {{"INDEX", index_type(n)},
         {"X", storage_type(p.x.dtype)},
         {"Y", storage_type(p.y.dtype)},
         {"FOURS", by_fours ? "1" : "0"},
         {"CHANNELS_LAST", p.y.layout == runtime::Layout::channels_last ? "1" : "0"}});
    return executable([=](CudaStream& stream, void* const* in, void* const* out, void*) {
        with_index(n, [&](auto count) {
            kernel.launch(stream, blocks_for(n), conv, count, in[0], in[1], in[2], in[3], out[0]);
        });
    });
}

}  // namespace

void register_quantized_conv_kernels() {
    register_kernel("quantized_conv", prepare_quantized_conv);
}

}  // namespace megjit::cuda
