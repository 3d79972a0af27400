// backends/cuda/kernels/matmul.cpp -- products of integer matrices, and of real ones whose copies
// have extents that suit tensor cores. NVIDIA's libraries compute all other products.
#include "runtime/ops/matmul.h"

#include <optional>
#include <utility>

#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/kernels/texts.h"
#include "runtime/host/product_rules.h"

namespace megjit::cuda {
namespace {

struct Product {  // laid out as in the kernel
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

// --- products of copies -------------------------------------------------------------------------

// A matrix, and the larger one that is multiplied in its place.
struct Padded {
    int64_t rows, columns, all_rows, all_columns;
    bool is_copy() const { return rows != all_rows || columns != all_columns; }
    Type type(DType dtype) const { return {dtype, {all_rows, all_columns}}; }
    size_t copy_bytes(DType dtype) const { return is_copy() ? aligned(type(dtype).bytes()) : 0; }
    Region to_copy() const { return region(columns, all_columns); }
    Region from_copy() const { return region(all_columns, columns); }
    Region region(int64_t from, int64_t to) const {
        Region region;
        region.push(rows, from, to);
        region.push(columns, 1, 1);
        return region;
    }
};

struct PaddedMatrices {
    Padded a, b, y;
    int64_t k, all_k;
};

// Tensor cores want rows that begin at multiples of 16 bytes: with other rows a product takes eight
// times as long, and a copy pays if each element takes part in enough products. (GPT-2's 50,257
// words on an H100: 6.6 ms by cuBLASLt, 0.9 when padded to 50,264.)
std::optional<PaddedMatrices> padded(const OpCall& call, std::span<const Type> outputs) {
    constexpr int64_t kLeastProducts = 256;
    const DType dtype = outputs[0].dtype;
    const runtime::MatmulProblem p = runtime::matmul_problem(call, outputs);
    const bool on_tensor_cores = dtype == DType::f16 || dtype == DType::bf16 ||
                                 (dtype == DType::f32 && runtime::product_rules().tf32);
    if (!on_tensor_cores || !p.batch.empty() || std::min({p.m, p.n, p.k}) == 0) return {};
    const auto unit = static_cast<int64_t>(16 / runtime::size_of(dtype));
    const auto larger = [&](int64_t extent) { return (extent + unit - 1) / unit * unit; };
    const int64_t m = p.ta ? larger(p.m) : p.m, n = larger(p.n),
                  k = !p.ta || p.tb ? larger(p.k) : p.k;
    PaddedMatrices all{p.ta ? Padded{p.k, p.m, k, m} : Padded{p.m, p.k, m, k},
                       p.tb ? Padded{p.n, p.k, n, k} : Padded{p.k, p.n, k, n},
                       Padded{p.m, p.n, m, n}, p.k, k};
    const bool is_worth_it = (!all.a.is_copy() || p.n >= kLeastProducts) &&
                             (!all.b.is_copy() || p.m >= kLeastProducts) &&
                             (!all.y.is_copy() || p.k >= kLeastProducts);
    if (!is_worth_it || !(all.a.is_copy() || all.b.is_copy() || all.y.is_copy())) return {};
    return all;
}

class ProductOfCopies final : public runtime::Executable {
public:
    ProductOfCopies(CudaDevice& device, const OpCall& call, DType dtype, const PaddedMatrices& m)
        : a_(device.gpu(), m.a.to_copy(), size_of(dtype)),
          b_(device.gpu(), m.b.to_copy(), size_of(dtype)),
          y_(device.gpu(), m.y.from_copy(), size_of(dtype)),
          bytes_{m.a.copy_bytes(dtype), m.b.copy_bytes(dtype), m.y.copy_bytes(dtype)},
          fills_(m.k != m.all_k) {
        const Type inputs[] = {m.a.type(dtype), m.b.type(dtype)}, output = m.y.type(dtype);
        product_ = device.prepare({call.op, call.attrs, inputs}, {&output, 1});
        remark_ = runtime::cat(product_->remark(), "; of copies whose rows begin at 16 bytes");
    }

    void enqueue(runtime::Stream& on, void* const* in, void* const* out,
                 void* workspace) const override {
        auto& stream = dynamic_cast<CudaStream&>(on);
        char* next = at(workspace, static_cast<int64_t>(aligned(product_->workspace_bytes())));
        const auto take = [&](size_t bytes) { return std::exchange(next, next + bytes); };
        const auto copied = [&](const RegionCopy& copy, size_t bytes, void* from) -> void* {
            if (bytes == 0) return from;
            void* const to = take(bytes);
            if (fills_) stream.clear(reinterpret_cast<Address>(to), bytes);
            copy(stream, from, to);
            return to;
        };
        void* const factors[] = {copied(a_, bytes_[0], in[0]), copied(b_, bytes_[1], in[1])};
        void* const result = bytes_[2] ? take(bytes_[2]) : out[0];
        product_->enqueue(on, factors, &result, workspace);
        if (bytes_[2]) y_(stream, result, out[0]);
    }
    size_t workspace_bytes() const override {
        return aligned(product_->workspace_bytes()) + bytes_[0] + bytes_[1] + bytes_[2];
    }
    size_t workspace_align() const override { return product_->workspace_align(); }
    double copied_bytes() const override {
        return 2 * static_cast<double>(bytes_[0] + bytes_[1] + bytes_[2]);
    }
    std::string_view remark() const override { return remark_; }

private:
    static int64_t size_of(DType dtype) { return static_cast<int64_t>(runtime::size_of(dtype)); }
    RegionCopy a_, b_, y_;
    size_t bytes_[3];  // bytes of the copies of a, b and y; 0: there is none
    bool fills_;  // the added terms of the sums must be 0
    std::shared_ptr<const runtime::Executable> product_;
    std::string remark_;
};

Prepared prepare_matmul(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& y = outputs[0];
    if (is_floating(y.dtype)) {
        const std::optional<PaddedMatrices> matrices = padded(call, outputs);
        if (!matrices) return nullptr;
        return std::make_shared<const ProductOfCopies>(device, call, y.dtype, *matrices);
    }
    if (y.numel() == 0) return nothing_to_do();
    constexpr int64_t kTile = 16;  // the same number as in the kernel
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
