// backends/cuda/kernels/matmul.cpp -- products of integer matrices; others are NVIDIA's libraries'.
#include "runtime/ops/matmul.h"

#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/kernels/texts.h"

namespace megjit::cuda {
namespace {

struct Product {  // as the kernel has it
    int64_t m, n, k;
    int64_t a_row, a_column, b_row, b_column;
    int64_t batch[8] = {}, a_batch[8] = {}, b_batch[8] = {};

    explicit Product(const runtime::MatmulProblem& p)
        : m(p.m),
          n(p.n),
          k(p.k),
          a_row(p.ta ? 1 : p.k),
          a_column(p.ta ? p.m : 1),
          b_row(p.tb ? 1 : p.n),
          b_column(p.tb ? p.k : 1) {
        int64_t a_size = m * k, b_size = k * n;
        for (size_t i = p.batch.size(); i-- > 0;) {
            batch[i] = p.batch[i];
            a_batch[i] = p.a_batch[i] == 1 ? 0 : a_size;
            b_batch[i] = p.b_batch[i] == 1 ? 0 : b_size;
            a_size *= p.a_batch[i];
            b_size *= p.b_batch[i];
        }
    }
};

Prepared prepare_matmul(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& y = outputs[0];
    if (is_floating(y.dtype)) return nullptr;
    if (y.numel() == 0) return nothing_to_do();
    constexpr int64_t kTile = 16;  // as the kernel has it
    const runtime::MatmulProblem p = runtime::matmul_problem(call, outputs);
    const int64_t tiles_m = (p.m + kTile - 1) / kTile, tiles_n = (p.n + kTile - 1) / kTile,
                  tiles = y.numel() / (p.m * p.n) * tiles_m * tiles_n;
    const SourceKernel kernel(device.gpu(), with_prelude(texts::matmul), "multiply",
                              {{"INDEX", index_type(tiles)},
                               {"T", storage_type(call.inputs[0].dtype)},
                               {"R", storage_type(y.dtype)},
                               {"RANK", cat(p.batch.size())}});
    LaunchSize size = blocks_for(tiles, 1);
    size.block[0] = size.block[1] = kTile;
    return executable(
        [=, product = Product(p)](CudaStream& stream, void* const* in, void* const* out, void*) {
        with_index(tiles, [&]<class Index>(Index count) {
            kernel.launch(stream, size, product, static_cast<Index>(tiles_m),
                          static_cast<Index>(tiles_n), count, in[0], in[1], out[0]);
        });
    });
}

}  // namespace

void register_matmul_kernels() { register_kernel("matmul", prepare_matmul); }

}  // namespace megjit::cuda
