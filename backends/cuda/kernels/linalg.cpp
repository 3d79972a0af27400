// backends/cuda/kernels/linalg.cpp -- matrix inverses; the host computes decompositions, and
// products of groups that data divides.
#include "runtime/ops/linalg.h"
#include "backends/cuda/kernels/host_round_trip.h"
#include "backends/cuda/kernels/texts.h"

namespace megjit::cuda {
namespace {

Prepared prepare_matinv(CudaDevice& device, const OpCall& call, std::span<const Type>) {
    const Type& x = call.inputs[0];
    if (x.numel() == 0) return nothing_to_do();
    const int64_t n = x.shape[x.rank() - 1], count = x.numel() / (n * n);
    const SourceKernel kernel(device.gpu(), with_prelude(texts::linalg), "matinv",
                              {{"INDEX", index_type(count)}});
    return executable([=](CudaStream& stream, void* const* in, void* const* out, void* work) {
        const Address fault = stream.fault_of_next([=](const Fault& wrong) {
            runtime::refuse_singular("matinv", static_cast<uint32_t>(wrong.value), count);
        });
        LaunchSize size = blocks_for(count, 1);
        size.block[0] = 256;
        with_index(count, [&](auto matrices) {
            kernel.launch(stream, size, static_cast<uint32_t>(n), matrices, in[0], out[0], work,
                          fault);
        });
    }, static_cast<size_t>((2 * n + 1) * n * count) * sizeof(double));
}

}  // namespace

void register_linalg_kernels() {
    register_kernel("matinv", prepare_matinv);
    for (const char* op : {"svd", "cholesky", "eigh", "qr", "slogdet", "solve", "lu",
                           "exchanged_rows", "solve_triangular", "grouped_matmul"})
        register_kernel(op, host_round_trip);
}

}  // namespace megjit::cuda
