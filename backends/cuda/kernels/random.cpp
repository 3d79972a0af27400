// backends/cuda/kernels/random.cpp -- random numbers. The host makes permutations and choices, in
// which each step needs the one before.
#include "backends/cuda/kernels/host_round_trip.h"
#include "backends/cuda/kernels/texts.h"
#include "runtime/ops/dropout.h"

namespace megjit::cuda {
namespace {

SourceKernel random_kernel(Gpu& gpu, std::string_view entry, int64_t n) {
    return SourceKernel(gpu,
                        cat(texts::prelude, texts::philox, texts::distributions, texts::random),
                        entry, {{"INDEX", index_type(n)}});
}

template <class... More>
Prepared by_blocks(Gpu& gpu, const char* entry, int64_t n, More... more) {
    if (n == 0) return nothing_to_do();
    return executable([=, kernel = random_kernel(gpu, entry, n)](
                          CudaStream& stream, void* const* in, void* const* out, void*) {
        with_index(n, [&](auto count) {
            kernel.launch(stream, blocks_for((n + 3) / 4), count, more..., in[0], out[0]);
        });
    });
}

Prepared prepare_uniform(CudaDevice& device, const OpCall&, std::span<const Type> outputs) {
    return by_blocks(device.gpu(), "uniform", outputs[0].numel());
}

Prepared prepare_normal(CudaDevice& device, const OpCall&, std::span<const Type> outputs) {
    return by_blocks(device.gpu(), "normal", outputs[0].numel());
}

Prepared prepare_dropout_mask(CudaDevice& device, const OpCall& call,
                              std::span<const Type> outputs) {
    const runtime::Dropout dropout(call.real("drop_prob"));
    return by_blocks(device.gpu(), "dropout_mask", outputs[0].numel(), dropout.below, dropout.kept);
}

// Prepares an op of a key and one or two parameters.
Prepared prepare_draws(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel();
    if (n == 0) return nothing_to_do();
    return executable(
        [n, pairs = call.inputs.size() == 3, kernel = random_kernel(device.gpu(), call.op.name, n)](
            CudaStream& stream, void* const* in, void* const* out, void*) {
        with_index(n, [&](auto count) {
            const LaunchSize size = blocks_for(n, 128);
            if (pairs) kernel.launch(stream, size, count, in[0], in[1], in[2], out[0]);
            else kernel.launch(stream, size, count, in[0], in[1], out[0]);
        });
    });
}

}  // namespace

void register_random_kernels() {
    register_kernel("random_uniform", prepare_uniform);
    register_kernel("random_normal", prepare_normal);
    register_kernel("dropout_mask", prepare_dropout_mask);
    register_kernel("random_gamma", prepare_draws);
    register_kernel("random_beta", prepare_draws);
    register_kernel("random_poisson", prepare_draws);
    register_kernel("random_permutation", host_round_trip);
    register_kernel("random_multinomial", host_round_trip);
}

}  // namespace megjit::cuda
