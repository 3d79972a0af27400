// backends/cuda/kernels/pool.cpp -- pooling with given and adaptive windows.
#include "runtime/ops/pool.h"

#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/kernels/texts.h"

namespace megjit::cuda {
namespace {

struct Pooling {  // laid out as in the kernels
    int64_t channels = 0;
    int32_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
    int32_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0};
    int32_t adaptive = 0;
    float counted = 0;

    Pooling(const OpCall& call, const Shape& x, const Shape& y) : channels(x[1]) {
        const int dims = x.rank() - 2;
        const runtime::PoolWindow window = runtime::pool_window(call, dims);
        adaptive = window.is_adaptive;
        if (window.counts_padding) counted = 1;
        int64_t plane = 1;
        for (int axis = 0; axis < dims; ++axis) {
            const int at = 3 - dims + axis;  // axes that the tensor lacks have extent 1
            const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
            plane *= x[axis + 2];
            in[at] = number(x[axis + 2]);
            out[at] = number(y[axis + 2]);
            kernel[at] = number(window.window.kernel[static_cast<size_t>(axis)]);
            stride[at] = number(window.window.stride[static_cast<size_t>(axis)]);
            padding[at] = number(window.window.padding[static_cast<size_t>(axis)]);
            if (window.counts_padding) counted *= static_cast<float>(kernel[at]);
        }
        if (plane > INT32_MAX)
            throw runtime::DeviceError(cat(call.op.name, ": planes of more than 2^31 elements"));
    }
};

enum class Kind { max, max_grad, max_pick, mean, mean_grad };

const char* entry_of(Kind kind) {
    switch (kind) {
        case Kind::max: return "max_pool";
        case Kind::max_grad: return "max_pool_grad";
        case Kind::max_pick: return "max_pool_pick";
        case Kind::mean: return "avg_pool";
        default: return "avg_pool_grad";
    }
}

template <Kind kind>
Prepared prepare_pool(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    constexpr bool backward = kind == Kind::max_grad || kind == Kind::mean_grad;
    const Type &first = call.inputs[0], &x = kind == Kind::mean_grad ? outputs[0] : first;
    const Type& y = kind == Kind::mean_grad ? first : backward ? call.inputs[1] : outputs[0];
    const int64_t count = outputs[0].numel(), windows = y.numel();
    if (count == 0) return nothing_to_do();
    const int64_t most = std::max(x.numel(), y.numel());
    const auto kernel = [&](const char* entry) {
        return SourceKernel(
            device.gpu(), with_prelude(texts::pool), entry,
            {{"INDEX", index_type(most)},
             {"T", storage_type(x.dtype)},
             {"CHANNELS_LAST", first.layout == runtime::Layout::channels_last ? "1" : "0"}});
    };
    const Pooling pooling(call, x.shape, y.shape);
    if constexpr (kind == Kind::max_grad) {
        return executable(
            [=, find = kernel("find_places"), collect = kernel(entry_of(kind))](
                CudaStream& stream, void* const* in, void* const* out, void* work) {
            with_index(most, [&]<class Index>(Index) {
                find.launch(stream, blocks_for(windows), pooling, static_cast<Index>(windows),
                            in[0], work);
                collect.launch(stream, blocks_for(count), pooling, static_cast<Index>(count), work,
                               in[1], out[0]);
            });
        },
            static_cast<size_t>(windows) * sizeof(int32_t));
    } else {
        return executable([=, run = kernel(entry_of(kind))](CudaStream& stream, void* const* in,
                                                            void* const* out, void*) {
            with_index(most, [&]<class Index>(Index) {
                const auto elements = static_cast<Index>(count);
                if constexpr (kind == Kind::max_pick)
                    run.launch(stream, blocks_for(count), pooling, elements, in[0], in[1], out[0]);
                else run.launch(stream, blocks_for(count), pooling, elements, in[0], out[0]);
            });
        });
    }
}

}  // namespace

void register_pool_kernels() {
    for (const std::string prefix : {"", "adaptive_"}) {
        register_kernel(prefix + "max_pool", prepare_pool<Kind::max>);
        register_kernel(prefix + "max_pool_grad", prepare_pool<Kind::max_grad>);
        register_kernel(prefix + "max_pool_pick", prepare_pool<Kind::max_pick>);
        register_kernel(prefix + "avg_pool", prepare_pool<Kind::mean>);
        register_kernel(prefix + "avg_pool_grad", prepare_pool<Kind::mean_grad>);
    }
}

}  // namespace megjit::cuda
