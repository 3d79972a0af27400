// backends/cuda/kernels/attention.cpp -- attention and its gradients as kernels of ours, for what
// cuDNN does not take: float32, masks, dropout, fewer heads of keys, any width.
#include "runtime/ops/attention.h"

#include <algorithm>

#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/kernels/texts.h"
#include "runtime/ops/dropout.h"

namespace megjit::cuda {
namespace {

using runtime::AttentionProblem;

struct Attention {  // as the kernels have it
    int64_t mask_batch = 0, mask_head = 0, mask_query = 0, mask_key = 0;
    uint32_t heads = 0, key_heads = 0, queries = 0, keys = 0, width = 0, value_width = 0;
    float scale = 1, kept = 1;
    uint32_t dropped_below = 0, is_causal = 0;

    Attention(const AttentionProblem& p, std::span<const Type> inputs)
        : heads(number(p.heads)),
          key_heads(number(p.key_heads)),
          queries(number(p.queries)),
          keys(number(p.keys)),
          width(number(p.width)),
          value_width(number(p.value_width)),
          scale(static_cast<float>(p.scale)),
          is_causal(p.is_causal) {
        if (p.random_key >= 0) {
            const runtime::Dropout dropout(p.drop_prob);
            kept = dropout.kept, dropped_below = dropout.below;
        }
        if (p.mask < 0) return;
        const auto strides = runtime::mask_strides(inputs[static_cast<size_t>(p.mask)].shape);
        mask_batch = strides[0], mask_head = strides[1];
        mask_query = strides[2], mask_key = strides[3];
    }
    static uint32_t number(int64_t extent) { return static_cast<uint32_t>(extent); }
};

struct Operands {
    const void *q, *k, *v, *dy, *lse, *dots, *mask, *key;
};

const void* given(void* const* in, int operand) { return operand < 0 ? nullptr : in[operand]; }

// A launch that makes `length` rows of `width` columns for each of `heads` heads: a block for a
// tile of rows and a part of their columns.
struct Rows {
    // As the kernels have them. kTile: rows of a block; kThreadsOfRow: those that share one.
    static constexpr int64_t kTile = 64, kThreadsOfRow = 16;
    static constexpr uint32_t kThreads = 256;

    int64_t heads = 0, length = 0, width = 0;

    int64_t columns() const { return width <= kTile ? kTile : 2 * kTile; }
    int64_t blocks() const {
        return heads * pieces_of(length, kTile) * std::max<int64_t>(1, pieces_of(width, columns()));
    }

private:
    static int64_t pieces_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }
};

std::string attention_source() { return cat(texts::prelude, texts::philox, texts::attention); }

// One of the kernels, ready for its rows.
class RowsKernel {
public:
    RowsKernel(Gpu& gpu, const char* entry, DType dtype, const Rows& rows, bool drops)
        : blocks_(static_cast<uint32_t>(rows.blocks())),
          kernel_(gpu, attention_source(), entry,
                  {{"INDEX", "unsigned"},
                   {"T", storage_type(dtype)},
                   {"COLUMNS", cat(rows.columns())},
                   {"DROPS", drops ? "1" : "0"}}) {}

    template <class... Args>
    void operator()(CudaStream& stream, const Attention& attention, const Args&... args) const {
        LaunchSize size = blocks_for(blocks_, 1);
        size.block[0] = Rows::kThreads;
        kernel_.launch(stream, size, attention, blocks_, args...);
    }

private:
    uint32_t blocks_;
    SourceKernel kernel_;
};

// What forward makes, and what backward does.
struct AttentionRows {
    explicit AttentionRows(const AttentionProblem& p)
        : y{p.batch * p.heads, p.queries, p.value_width},
          dq{p.batch * p.heads, p.queries, p.width},
          dk{p.batch * p.key_heads, p.keys, p.width},
          dv{p.batch * p.key_heads, p.keys, p.value_width} {}
    Rows y, dq, dk, dv;
};

// A tile of few queries costs what a whole one does, and their scores are no larger than the keys:
// they are left to the libraries' products. The kernels count in 32 bits.
bool computes_attention(const OpCall& call) {
    const AttentionProblem p = runtime::attention_problem(call);
    constexpr int64_t kFewest = Rows::kTile / 4;
    if (p.queries < kFewest) return false;
    const AttentionRows made(p);
    return std::max({p.queries, p.keys, p.width, p.value_width, made.y.blocks(), made.dq.blocks(),
                     made.dk.blocks(), made.dv.blocks()}) <= INT32_MAX;
}

Prepared prepare_attention(CudaDevice& device, const OpCall& call, std::span<const Type>) {
    if (!computes_attention(call)) return nullptr;
    const AttentionProblem p = runtime::attention_problem(call);
    const RowsKernel attend(device.gpu(), "attend", call.inputs[0].dtype, AttentionRows(p).y,
                            p.random_key >= 0);
    return executable([=, attention = Attention(p, call.inputs)](
                          CudaStream& stream, void* const* in, void* const* out, void*) {
        attend(stream, attention, in[0], in[1], in[2], given(in, p.mask), given(in, p.random_key),
               out[0], out[1]);
    });
}

Prepared prepare_attention_grad(CudaDevice& device, const OpCall& call, std::span<const Type>) {
    if (!computes_attention(call)) return nullptr;
    const AttentionProblem p = runtime::attention_problem(call);
    const AttentionRows made(p);
    const auto kernel = [&](const char* entry, const Rows& rows) {
        return RowsKernel(device.gpu(), entry, call.inputs[0].dtype, rows, p.random_key >= 0);
    };
    const SourceKernel dots(device.gpu(), attention_source(), "row_dots",
                            {{"INDEX", "unsigned"},
                             {"T", storage_type(call.inputs[0].dtype)},
                             {"COLUMNS", "64"},
                             {"DROPS", "0"}});
    const int64_t rows = p.batch * p.heads * p.queries;
    return executable(
        [=, dq = kernel("query_gradient", made.dq), dk = kernel("key_gradient", made.dk),
         dv = kernel("value_gradient", made.dv), attention = Attention(p, call.inputs)](
            CudaStream& stream, void* const* in, void* const* out, void* work) {
        const Operands operands{
            in[0], in[1], in[2], in[5], in[4], work, given(in, p.mask), given(in, p.random_key)};
        dots.launch(stream, blocks_for(Rows::kThreadsOfRow * rows, Rows::kThreads),
                    static_cast<uint64_t>(rows), attention.value_width, in[3], in[5], work);
        dq(stream, attention, operands, out[0]);
        dk(stream, attention, operands, out[1]);
        dv(stream, attention, operands, out[2]);
    },
        static_cast<size_t>(rows) * sizeof(float));
}

}  // namespace

void register_attention_kernels() {
    register_kernel("attention", prepare_attention, computes_attention);
    register_kernel("attention_grad", prepare_attention_grad, computes_attention);
}

}  // namespace megjit::cuda
