// backends/cuda/kernels/norm.cpp -- normalizations, softmax and sums that generated kernels do not
// take: of empty, channels-last and complex tensors.
#include <algorithm>

#include "backends/cuda/kernels/executables.h"

namespace megjit::cuda {
namespace {

// Prepares the op `inner` on the same tensors with other types.
Prepared prepare_as(CudaDevice& device, const OpCall& call, std::span<const Type> inputs,
                    std::span<const Type> outputs) {
    return device.prepare({call.op, call.attrs, inputs}, outputs);
}

Prepared prepare_empty(CudaDevice&, const OpCall& call, std::span<const Type> outputs) {
    return call.inputs[0].numel() > 0 ? nullptr : zeros(outputs);
}

// A channels-last tensor is a row-major one of [n and spatial, c].
Type as_rows(const Type& type) {
    if (type.layout != runtime::Layout::channels_last) return type;
    const int64_t channels = type.shape[1];
    return {type.dtype, {type.numel() / channels, channels}};
}

Prepared prepare_batch_norm(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    if (Prepared zeros = prepare_empty(device, call, outputs)) return zeros;
    if (call.inputs[0].layout != runtime::Layout::channels_last) return nullptr;
    std::vector<Type> in, out;
    std::ranges::transform(call.inputs, std::back_inserter(in), as_rows);
    std::ranges::transform(outputs, std::back_inserter(out), as_rows);
    return prepare_as(device, call, in, out);
}

Prepared prepare_reduce_sum(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    if (call.inputs[0].dtype != DType::c64) return nullptr;
    const Type in[] = {as_floats(call.inputs[0])}, out[] = {as_floats(outputs[0])};
    return prepare_as(device, call, in, out);
}

}  // namespace

void register_norm_kernels() {
    for (const char* op : {"softmax", "log_softmax", "layer_norm", "layer_norm_grad"})
        register_kernel(op, prepare_empty);
    for (const char* op :
         {"batch_norm", "batch_norm_grad", "batch_norm_stats", "batch_norm_grad_sums"})
        register_kernel(op, prepare_batch_norm);
    register_kernel("reduce_sum", prepare_reduce_sum);
}

}  // namespace megjit::cuda
