#include "backends/cpu/kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "backends/cpu/convert.h"
#include "backends/cpu/products.h"
#include "runtime/host/parallel.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/dropout.h"

#define MEGJIT_KERNELS "backends/cpu/kernels/attention.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

using runtime::AttentionProblem;
using runtime::OpCall;
using runtime::parallel_for;
using runtime::Philox;
using runtime::Type;

int64_t padded(int64_t width) {
    constexpr int64_t kWidth = AttentionShape::kWidth;
    return (width + kWidth - 1) / kWidth * kWidth;
}

AttentionShape shape_of(const AttentionProblem& p, std::span<const Type> inputs) {
    AttentionShape s{.queries = p.queries,
                     .keys = p.keys,
                     .width = padded(p.width),
                     .value_width = padded(p.value_width),
                     .scale = static_cast<float>(p.scale),
                     .is_causal = p.is_causal,
                     .gives_zeros = p.gives_zeros};
    if (p.drop_prob > 0) {
        const runtime::Dropout dropout(p.drop_prob);
        s.kept = dropout.kept, s.dropped_below = dropout.below;
    }
    const auto strides = [&](int operand) -> AttentionShape::Strides {
        const auto all = runtime::mask_strides(inputs[static_cast<size_t>(operand)].shape);
        return {all[2], all[3]};
    };
    s.masks = p.masks;
    for (int i = 0; i < p.masks; ++i) s.mask[i] = strides(p.first_mask + i);
    if (p.seen >= 0) s.seen = strides(p.seen), s.hidden = strides(p.hidden);
    return s;
}

// An operand whose rows are copied to longer ones, or a result copied from them; zeros fill the
// rest.
struct Padding {
    bool is_output = false;
    int index = 0;
    int64_t rows = 0, width = 0;
    size_t offset = 0;  // place of the copy in the workspace, in floats
    int64_t floats() const { return rows * padded(width); }
};

void copy_rows(const float* from, int64_t from_row, float* to, int64_t to_row, int64_t rows) {
    const int64_t width = std::min(from_row, to_row);
    parallel_for(rows, std::max<int64_t>(1, 32768 / to_row), 1, [=](int64_t lo, int64_t hi) {
        for (int64_t row = lo; row < hi; ++row) {
            std::copy_n(from + row * from_row, width, to + row * to_row);
            std::fill_n(to + row * to_row + width, to_row - width, 0.0f);
        }
    });
}

// The common part of forward and backward: operands of padded widths, and the threads' scratch.
class AttentionExecutable : public runtime::Executable {
public:
    AttentionExecutable(const OpCall& call, std::span<const Type> outputs)
        : problem_(runtime::attention_problem(call)),
          shape_(shape_of(problem_, call.inputs)),
          inputs_(call.inputs.size()),
          outputs_(outputs.size()) {
        const size_t tensors = call.op.inputs.size() - 1;  // neither masks nor the key
        for (size_t i = 0; i < tensors; ++i) add_padding(false, i, call.inputs[i]);
        for (size_t i = 0; i < outputs.size(); ++i) add_padding(true, i, outputs[i]);
        for (const Type& type : call.inputs)
            strides_.push_back(type.rank() == 4 ? runtime::mask_strides(type.shape) : Strides());
    }
    size_t workspace_bytes() const final { return floats_ * sizeof(float); }

    void enqueue(runtime::Stream&, void* const* inputs, void* const* outputs,
                 void* workspace) const final {
        float *in[kMostInputs], *out[3], *const work = static_cast<float*>(workspace);
        for (size_t i = 0; i < inputs_; ++i) in[i] = static_cast<float*>(inputs[i]);
        for (size_t i = 0; i < outputs_; ++i) out[i] = static_cast<float*>(outputs[i]);
        for (const Padding& p : paddings_) {
            float*& operand = (p.is_output ? out : in)[p.index];
            if (!p.is_output) copy_rows(operand, p.width, work + p.offset, padded(p.width), p.rows);
            operand = work + p.offset;
        }
        run(in, out, work);
        for (const Padding& p : paddings_)
            if (p.is_output)
                copy_rows(work + p.offset, padded(p.width), static_cast<float*>(outputs[p.index]),
                          p.width, p.rows);
    }

protected:
    static constexpr size_t kMostInputs = 6 + AttentionShape::kMasks + 3;

    virtual void run(float* const* in, float* const* out, float* work) const = 0;

    size_t take(int64_t floats) {
        const size_t offset = floats_;
        floats_ += static_cast<size_t>((floats + 15) / 16 * 16);  // rounds up to cache lines
        return offset;
    }
    // Reserves `floats` of scratch for each of the threads that `units` units of `flops` operations
    // need.
    void share(int64_t units, double flops, int64_t floats) {
        constexpr double kWorthAThread = 1e6;
        const double worth = static_cast<double>(units) * flops / kWorthAThread;
        slots_ = std::clamp<int64_t>(static_cast<int64_t>(std::min(worth, 1e6)), 1,
                                     std::min<int64_t>(units, runtime::thread_count()));
        scratch_floats_ = (floats + 15) / 16 * 16;
        scratch_ = take(slots_ * scratch_floats_);
    }
    // Calls body(unit, scratch) for all units; threads take them one by one.
    template <class Body>
    void for_each(int64_t units, float* work, const Body& body) const {
        std::atomic<int64_t> next{0};
        parallel_for(slots_, 1, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t slot = lo; slot < hi; ++slot)
                for (int64_t unit; (unit = next.fetch_add(1, std::memory_order_relaxed)) < units;)
                    body(unit, work + scratch_ + static_cast<size_t>(slot * scratch_floats_));
        });
    }
    // Returns the head of that number, counted through the batch.
    AttentionHead head(int64_t number, float* const* in) const {
        const int64_t shared = problem_.heads / problem_.key_heads, keys = number / shared;
        AttentionHead h{.q = in[0] + number * shape_.queries * shape_.width,
                        .k = in[1] + keys * shape_.keys * shape_.width,
                        .v = in[2] + keys * shape_.keys * shape_.value_width};
        const auto offset = [&](int operand) {
            const Strides& strides = strides_[static_cast<size_t>(operand)];
            return number / problem_.heads * strides[0] + number % problem_.heads * strides[1];
        };
        for (int i = 0; i < problem_.masks; ++i) {
            const int mask = problem_.first_mask + i;
            h.mask[i] = in[mask] + offset(mask);
        }
        if (problem_.seen >= 0) {
            h.seen = reinterpret_cast<const uint8_t*>(in[problem_.seen]) + offset(problem_.seen);
            h.hidden = in[problem_.hidden] + offset(problem_.hidden);
        }
        if (problem_.random_key >= 0)
            h.random = Philox::from_key(reinterpret_cast<const int32_t*>(in[problem_.random_key]));
        h.first_score =
            static_cast<uint64_t>(number * shape_.queries) * static_cast<uint64_t>(shape_.keys);
        return h;
    }
    AttentionBlock block(int64_t number) const {
        const int64_t query = number * AttentionShape::kQueries;
        return {query, std::min(AttentionShape::kQueries, shape_.queries - query)};
    }
    // Operations that a block takes, with `products` products for each key.
    double flops_of_block(int products) const {
        return products * static_cast<double>(AttentionShape::kQueries * shape_.keys) *
               static_cast<double>(shape_.width + shape_.value_width);
    }

    AttentionProblem problem_;
    AttentionShape shape_;

private:
    using Strides = std::array<int64_t, 4>;

    void add_padding(bool is_output, size_t index, const Type& type) {
        if (type.rank() < 4 || type.shape[3] % AttentionShape::kWidth == 0) return;
        Padding p{is_output, static_cast<int>(index), type.numel() / type.shape[3], type.shape[3]};
        p.offset = take(p.floats());
        paddings_.push_back(p);
    }

    size_t inputs_, outputs_, floats_ = 0, scratch_ = 0;
    int64_t slots_ = 1, scratch_floats_ = 0;
    std::vector<Strides> strides_;  // for each mask
    std::vector<Padding> paddings_;
};

class ForwardAttention final : public AttentionExecutable {
public:
    ForwardAttention(const OpCall& call, std::span<const Type> outputs)
        : AttentionExecutable(call, outputs),
          units_(problem_.batch * problem_.heads * shape_.blocks()) {
        share(units_, flops_of_block(2), shape_.forward_floats());
    }

private:
    void run(float* const* in, float* const* out, float* work) const override {
        const int64_t blocks = shape_.blocks();
        for_each(units_, work, [&](int64_t unit, float* scratch) {
            const int64_t number = unit / blocks;
            // The last blocks of causal attention take longest, so they come first.
            MEGJIT_BEST(attend)(shape_, head(number, in), block(blocks - 1 - unit % blocks),
                                out[0] + number * shape_.queries * shape_.value_width,
                                out[1] + number * shape_.queries, scratch);
        });
    }

    int64_t units_;
};

// Threads share the heads of keys, and pieces of their keys where there are few heads. dq is a sum
// over the pieces, so their number follows from the shapes alone.
class BackwardAttention final : public AttentionExecutable {
public:
    BackwardAttention(const OpCall& call, std::span<const Type> outputs)
        : AttentionExecutable(call, outputs),
          heads_(problem_.batch * problem_.key_heads),
          dq_floats_(problem_.batch * problem_.heads * shape_.queries * shape_.width) {
        constexpr int64_t kUnits = 8, kFewestKeys = 256;
        const int64_t wanted = std::clamp<int64_t>((kUnits + heads_ - 1) / heads_, 1,
                                                   std::max<int64_t>(1, shape_.keys / kFewestKeys));
        const int64_t keys = (shape_.keys + wanted - 1) / wanted;
        piece_ = (keys + AttentionShape::kKeys - 1) / AttentionShape::kKeys * AttentionShape::kKeys;
        pieces_ = (shape_.keys + piece_ - 1) / piece_;
        partial_ = take((pieces_ - 1) * dq_floats_);
        rest_ = take(rows());
        const int64_t blocks = problem_.heads / problem_.key_heads * shape_.blocks();
        share(heads_ * pieces_,
              flops_of_block(5) * static_cast<double>(blocks) / static_cast<double>(pieces_),
              shape_.backward_floats());
    }

private:
    int64_t rows() const { return problem_.batch * problem_.heads * shape_.queries; }

    // Where lse is nowhere large there is no rest, and it is not computed.
    const float* find_rest(float* const* in, float* work) const {
        const float* const lse = in[4];
        if (std::none_of(lse, lse + rows(), AttentionShape::is_rounded)) return nullptr;
        float* const rest = work + rest_;
        const int64_t blocks = shape_.blocks();
        for_each(problem_.batch * problem_.heads * blocks, work, [&](int64_t unit, float* scratch) {
            const int64_t number = unit / blocks, first = number * shape_.queries;
            MEGJIT_BEST(find_rest)(shape_, head(number, in), block(unit % blocks), lse + first,
                                   rest + first, scratch);
        });
        return rest;
    }

    void run(float* const* in, float* const* out, float* work) const override {
        const float* const rest = find_rest(in, work);
        for_each(heads_ * pieces_, work, [&](int64_t unit, float* scratch) {
            differentiate(unit / pieces_, unit % pieces_, in, out, work, rest, scratch);
        });
        if (pieces_ == 1) return;
        parallel_for(dq_floats_, 32768, 64, [&](int64_t lo, int64_t hi) {
            for (int64_t piece = 1; piece < pieces_; ++piece) {
                const float* const from = work + partial_ + (piece - 1) * dq_floats_;
                for (int64_t i = lo; i < hi; ++i) out[0][i] += from[i];
            }
        });
    }

    void differentiate(int64_t key_head, int64_t piece, float* const* in, float* const* out,
                       float* work, const float* rest, float* scratch) const {
        const AttentionShape& s = shape_;
        const int64_t shared = problem_.heads / problem_.key_heads, first = piece * piece_,
                      last = std::min(s.keys, first + piece_), queries = s.queries * s.width;
        float* const dq = piece ? work + partial_ + (piece - 1) * dq_floats_ : out[0];
        AttentionGrads grads{.dk = out[1] + key_head * s.keys * s.width,
                             .dv = out[2] + key_head * s.keys * s.value_width};
        std::fill(grads.dk + first * s.width, grads.dk + last * s.width, 0.0f);
        std::fill(grads.dv + first * s.value_width, grads.dv + last * s.value_width, 0.0f);
        for (int64_t number = key_head * shared; number < (key_head + 1) * shared; ++number) {
            const int64_t values = number * s.queries * s.value_width;
            grads.y = in[3] + values, grads.dy = in[5] + values;
            grads.lse = in[4] + number * s.queries;
            grads.rest = rest ? rest + number * s.queries : nullptr;
            grads.dq = dq + number * queries;
            std::fill_n(grads.dq, queries, 0.0f);
            const AttentionHead of = head(number, in);
            for (int64_t b = 0; b < s.blocks(); ++b)
                MEGJIT_BEST(attend_grad)(s, of, block(b), grads, first, last, scratch);
        }
    }

    int64_t heads_, dq_floats_, piece_ = 0, pieces_ = 1;
    size_t partial_ = 0, rest_ = 0;
};

// If the CPU multiplies halves faster than float32, oneDNN's products are better for them.
bool computes_attention(const OpCall& call) {
    const runtime::DType dtype = call.inputs[0].dtype;
    return dtype == runtime::DType::f32 || !computes_natively(dtype);
}

template <class Kind>
Prepared prepare(const OpCall& call, std::span<const Type> outputs) {
    if (!computes_attention(call)) return nullptr;
    if (Prepared converted = in_float32(call, outputs, prepare<Kind>)) return converted;
    const AttentionProblem p = runtime::attention_problem(call);
    if (p.batch * p.heads * p.queries == 0) return make_zeros(outputs);
    return std::make_shared<const Kind>(call, outputs);
}

}  // namespace

void register_attention_kernels() {
    register_kernel("attention", prepare<ForwardAttention>, computes_attention);
    register_kernel("attention_grad", prepare<BackwardAttention>, computes_attention);
}

}  // namespace megjit::cpu
