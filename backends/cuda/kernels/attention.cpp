// backends/cuda/kernels/attention.cpp -- attention and its gradients as kernels of ours, for what
// cuDNN does not take: float32, masks, dropout, fewer heads of keys, any width. Halves go through
// tensor cores on cards that have those of sm_80.
#include "runtime/ops/attention.h"

#include <algorithm>

#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/kernels/texts.h"
#include "runtime/ops/dropout.h"

namespace megjit::cuda {
namespace {

using runtime::AttentionParts;
using runtime::AttentionProblem;
using runtime::HeadsPart;

struct View {  // laid out as in the kernels
    int64_t batch = 0, head = 0, row = 0;

    View(const HeadsPart& part)
        : batch(part.view.strides[0]), head(part.view.strides[1]), row(part.view.strides[2]) {}
};

struct Attention {  // laid out as in the kernels
    std::array<int64_t, 4> mask[AttentionProblem::kMostMasks] = {}, seen = {}, hidden = {};
    View q, k, v, y, dy, dq, dk, dv;
    uint32_t heads = 0, key_heads = 0, queries = 0, keys = 0, width = 0, value_width = 0;
    float scale = 1, kept = 1;
    uint32_t dropped_below = 0, is_causal = 0, gives_zeros = 0;

    Attention(const AttentionProblem& p, const AttentionParts& parts, std::span<const Type> inputs)
        : q(parts.q),
          k(parts.k),
          v(parts.v),
          y(parts.y),
          dy(parts.dy),
          dq(parts.dq),
          dk(parts.dk),
          dv(parts.dv),
          heads(number(p.heads)),
          key_heads(number(p.key_heads)),
          queries(number(p.queries)),
          keys(number(p.keys)),
          width(number(p.width)),
          value_width(number(p.value_width)),
          scale(static_cast<float>(p.scale)),
          is_causal(p.is_causal),
          gives_zeros(p.gives_zeros) {
        if (p.random_key >= 0) {
            const runtime::Dropout dropout(p.drop_prob);
            kept = dropout.kept, dropped_below = dropout.below;
        }
        const auto strides = [&](int operand) {
            return runtime::mask_strides(inputs[static_cast<size_t>(operand)].shape);
        };
        for (int i = 0; i < p.masks; ++i) mask[i] = strides(p.first_mask + i);
        if (p.seen >= 0) seen = strides(p.seen), hidden = strides(p.hidden);
    }
    static uint32_t number(int64_t extent) { return static_cast<uint32_t>(extent); }
};

// Where each part begins in the tensors of a call.
struct Places {
    AttentionParts parts;
    size_t element_bytes = 0;

    explicit Places(const OpCall& call)
        : parts(runtime::attention_parts(call)),
          element_bytes(runtime::info(call.inputs[0].dtype).bytes) {}
    void* operator()(void* const* tensors, const HeadsPart& part) const {
        const auto offset = static_cast<size_t>(part.view.offset) * element_bytes;
        return static_cast<std::byte*>(tensors[part.tensor]) + offset;
    }
};

const void* given(void* const* in, int operand) { return operand < 0 ? nullptr : in[operand]; }

struct Masks {
    const void *mask[AttentionProblem::kMostMasks] = {}, *seen = nullptr, *hidden = nullptr;

    Masks(const AttentionProblem& p, void* const* in)
        : seen(given(in, p.seen)), hidden(given(in, p.hidden)) {
        for (int i = 0; i < p.masks; ++i) mask[i] = in[p.first_mask + i];
    }
};

struct Operands {
    const void *q, *k, *v, *dy, *lse, *dots, *shifts;
    Masks masks;
    const void* key;
};

// A launch that computes `length` rows of `width` columns for each of `heads` heads: a block for
// each tile of rows and part of their columns.
struct Rows {
    static constexpr int64_t kTile = 64;  // rows of a block, the same number as in the kernels

    int64_t heads = 0, length = 0, width = 0;

    int64_t columns() const { return width <= kTile ? kTile : 2 * kTile; }
    int64_t blocks() const { return blocks(columns()); }
    int64_t blocks(int64_t columns_of_block) const {
        return heads * pieces_of(length, kTile) *
               std::max<int64_t>(1, pieces_of(width, columns_of_block));
    }

private:
    static int64_t pieces_of(int64_t extent, int64_t size) { return (extent + size - 1) / size; }
};

std::string source_of(std::string_view products) {
    return cat(texts::prelude, texts::philox, texts::attention_scores, products,
               texts::attention_gradients);
}

// How the kernels multiply, and how many threads a block has.
struct Way {
    std::string source;
    uint32_t threads;
};
Way scalar_way() { return {source_of(texts::attention), 256}; }
Way way_of(const Gpu& gpu, DType dtype) {
    constexpr int kFirstArch = 80;  // its mma takes fragments of these sizes
    if (dtype == DType::f32 || gpu.target().gpu_arch < kFirstArch) return scalar_way();
    return {source_of(texts::attention_tensor), 128};
}

// One of the kernels, prepared for its blocks, which compute so many columns.
class RowsKernel {
public:
    RowsKernel(Gpu& gpu, const char* entry, DType dtype, int64_t columns, int64_t blocks,
               const AttentionProblem& p)
        : RowsKernel(gpu, way_of(gpu, dtype), entry, dtype, columns, blocks, p) {}

    template <class... Args>
    void operator()(CudaStream& stream, const Attention& attention, const Args&... args) const {
        LaunchSize size = blocks_for(blocks_, 1);
        size.block[0] = threads_;
        kernel_.launch(stream, size, attention, blocks_, args...);
    }

private:
    RowsKernel(Gpu& gpu, const Way& way, const char* entry, DType dtype, int64_t columns,
               int64_t blocks, const AttentionProblem& p)
        : blocks_(static_cast<uint32_t>(blocks)),
          threads_(way.threads),
          kernel_(gpu, way.source, entry,
                  {{"INDEX", "unsigned"},
                   {"T", storage_type(dtype)},
                   {"COLUMNS", cat(columns)},
                   {"DROPS", p.random_key >= 0 ? "1" : "0"},
                   {"MASKS", cat(p.masks)},
                   {"HIDES", p.seen >= 0 ? "1" : "0"}}) {}

    uint32_t blocks_, threads_;
    SourceKernel kernel_;
};

// The rows that forward and backward compute, and those of one number for each query.
struct AttentionRows {
    explicit AttentionRows(const AttentionProblem& p)
        : y{p.batch * p.heads, p.queries, p.value_width},
          queries{p.batch * p.heads, p.queries, 1},
          dq{p.batch * p.heads, p.queries, p.width},
          dk{p.batch * p.key_heads, p.keys, p.width},
          dv{p.batch * p.key_heads, p.keys, p.value_width} {}
    Rows y, queries, dq, dk, dv;
};

// A tile of few queries costs as much as a whole one, and their scores are no larger than the keys:
// they are left to the libraries' products. The kernels count in 32 bits.
bool computes_attention(const OpCall& call) {
    const AttentionProblem p = runtime::attention_problem(call);
    constexpr int64_t kFewest = Rows::kTile / 4;
    if (p.queries < kFewest) return false;
    const AttentionRows made(p);
    const AttentionParts parts = runtime::attention_parts(call);
    int64_t largest = std::max({p.queries, p.keys, p.width, p.value_width, made.y.blocks(),
                                made.dq.blocks() + made.dk.blocks() + made.dv.blocks()});
    for (const HeadsPart& part :
         {parts.q, parts.k, parts.v, parts.y, parts.dy, parts.dq, parts.dk, parts.dv})
        largest = std::max(largest, part.view.strides[2]);
    return largest <= INT32_MAX;
}

Prepared prepare_attention(CudaDevice& device, const OpCall& call, std::span<const Type>) {
    if (!computes_attention(call)) return nullptr;
    const AttentionProblem p = runtime::attention_problem(call);
    const Rows y = AttentionRows(p).y;
    const RowsKernel attend(device.gpu(), "attend", call.inputs[0].dtype, y.columns(), y.blocks(),
                            p);
    const Places at(call);
    return executable([=, attention = Attention(p, at.parts, call.inputs)](
                          CudaStream& stream, void* const* in, void* const* out, void*) {
        attend(stream, attention, at(in, at.parts.q), at(in, at.parts.k), at(in, at.parts.v),
               Masks(p, in), given(in, p.random_key), at(out, at.parts.y), out[1]);
    });
}

// What `gradients` writes, and how many of its blocks compute the first two, as in the kernel.
struct Gradients {
    void *dq, *dk, *dv;
    uint32_t query_blocks, key_blocks;
};

Prepared prepare_attention_grad(CudaDevice& device, const OpCall& call, std::span<const Type>) {
    if (!computes_attention(call)) return nullptr;
    const AttentionProblem p = runtime::attention_problem(call);
    const AttentionRows made(p);
    const int64_t columns = std::max(made.dk.columns(), made.dv.columns()),
                  query_blocks = made.dq.blocks(columns), key_blocks = made.dk.blocks(columns);
    const auto kernel = [&](const char* entry, int64_t blocks) {
        return RowsKernel(device.gpu(), entry, call.inputs[0].dtype, columns, blocks, p);
    };
    const int64_t rows = p.batch * p.heads * p.queries;
    return executable(
        [=, find_shifts = kernel("find_shifts", made.queries.blocks()),
         gradients = kernel("gradients", query_blocks + key_blocks + made.dv.blocks(columns)),
         at = Places(call), attention = Attention(p, runtime::attention_parts(call), call.inputs)](
            CudaStream& stream, void* const* in, void* const* out, void* work) {
        float *const shifts = static_cast<float*>(work), *const dots = shifts + 2 * rows;
        const AttentionParts& parts = at.parts;
        const Operands operands{at(in, parts.q),  at(in, parts.k), at(in, parts.v),
                                at(in, parts.dy), in[4],           dots,
                                shifts,           Masks(p, in),    given(in, p.random_key)};
        const void* const y = at(in, parts.y);
        find_shifts(stream, attention, operands, y, shifts, dots);
        gradients(
            stream, attention, operands,
            Gradients{at(out, parts.dq), at(out, parts.dk), at(out, parts.dv),
                      static_cast<uint32_t>(query_blocks), static_cast<uint32_t>(key_blocks)});
    },
        3 * static_cast<size_t>(rows) * sizeof(float));
}

}  // namespace

void register_attention_kernels() {
    register_kernel("attention", prepare_attention, computes_attention);
    register_kernel("attention_grad", prepare_attention_grad, computes_attention);
    register_kernel("attention_of_parts", prepare_attention, computes_attention);
    register_kernel("attention_grad_of_parts", prepare_attention_grad, computes_attention);
}

}  // namespace megjit::cuda
