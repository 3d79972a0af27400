// backends/cpu/kernels/block_weights.cpp -- weights in blocks of few bits, and products with them.
//
// For few rows of x the weights are read as they are: that takes the time of reading them. For more
// rows they are decoded by strips of a few megabytes, which products.h multiplies: no more than a
// strip ever exists as float32.
#include "runtime/ops/block_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/instructions.h"
#include "backends/cpu/products.h"
#include "runtime/host/error.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

using runtime::BlockWeights;
using runtime::OpCall;
using runtime::parallel_for;
using runtime::Type;

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/block_weights.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

constexpr int64_t kGrain = 1 << 16;  // so many weights are worth a second thread

// Calls body<bits, group>(); block_weights_of admits no others.
template <class Body>
void with_form(const BlockWeights& w, const Body& body) {
    const auto by_group = [&]<int bits>() {
        if (w.group == 32) body.template operator()<bits, 32>();
        else if (w.group == 64) body.template operator()<bits, 64>();
        else body.template operator()<bits, 128>();
    };
    if (w.bits == 4) by_group.template operator()<4>();
    else by_group.template operator()<8>();
}

// Decodes blocks lo..hi of all rows, row by row.
void decode_blocks(const BlockWeights& w, const uint8_t* weights, int64_t lo, int64_t hi,
                   float* values) {
    const int64_t width = (hi - lo) * w.group;
    with_form(w, [&]<int bits, int64_t group>() {
        parallel_for(w.rows, 1 + kGrain / std::max<int64_t>(1, width), 1,
                     [&](int64_t first, int64_t last) {
            for (int64_t r = first; r < last; ++r)
                MEGJIT_BEST(decode<bits, group>)(weights + r * w.row_bytes(), lo, hi,
                                                 values + r * width);
        });
    });
}

// Decodes rows from..to as the columns of a matrix.
void decode_rows(const BlockWeights& w, const uint8_t* weights, int64_t from, int64_t to,
                 float* values) {
    constexpr int64_t kTogether = 16;
    with_form(w, [&]<int bits, int64_t group>() {
        parallel_for(to - from, 1 + kGrain / w.columns(), kTogether, [&](int64_t lo, int64_t hi) {
            for (int64_t r = lo; r < hi; r += kTogether)
                MEGJIT_BEST(decode_turned<bits, group>)(w, weights + (from + r) * w.row_bytes(),
                                                        std::min(kTogether, hi - r), values + r,
                                                        to - from);
        });
    });
}

Prepared prepare_dequantize(const OpCall& call, std::span<const Type>) {
    return executable(
        [w = runtime::block_weights_of(call)](void* const* in, void* const* out, void*) {
        decode_blocks(w, static_cast<const uint8_t*>(in[0]), 0, w.blocks,
                      static_cast<float*>(out[0]));
    });
}

Prepared by_rows(const BlockWeights& w, int64_t rows) {
    return executable([=](void* const* in, void* const* out, void*) {
        with_form(w, [&]<int bits, int64_t group>() {
            parallel_for(w.rows, 1 + kGrain / w.columns(), 4, [&](int64_t lo, int64_t hi) {
                MEGJIT_BEST(dots_of_rows<bits, group>)(w, static_cast<const uint8_t*>(in[1]), lo,
                                                       hi, static_cast<const float*>(in[0]), rows,
                                                       static_cast<float*>(out[0]));
            });
        });
    });
}

// Strips of the result's columns: rows of the weights, or, for the product with what is not
// transposed, columns of whole blocks.
class StripsExecutable final : public runtime::Executable {
public:
    StripsExecutable(const OpCall& call, const BlockWeights& w, int64_t rows, bool turned)
        : w_(w), rows_(rows), turned_(turned), strip_(widest_strip()) {
        whole_ = product(call, std::min(strip_, columns()));
        if (const int64_t rest = columns() % strip_; rest && columns() > strip_)
            rest_ = product(call, rest);
        beside_ =
            aligned(static_cast<size_t>(std::min(strip_, columns()) * terms()) * sizeof(float));
    }

    size_t workspace_bytes() const override {
        return beside_ + std::max(whole_->workspace_bytes(), rest_ ? rest_->workspace_bytes() : 0);
    }

    void enqueue(runtime::Stream& stream, void* const* in, void* const* out,
                 void* workspace) const override {
        const uint8_t* const weights = static_cast<const uint8_t*>(in[1]);
        float* const values = static_cast<float*>(workspace);
        for (int64_t first = 0; first < columns(); first += strip_) {
            const int64_t last = std::min(columns(), first + strip_);
            if (turned_) decode_blocks(w_, weights, first / w_.group, last / w_.group, values);
            else decode_rows(w_, weights, first, last, values);
            void* const operands[] = {in[0], values};
            void* result = static_cast<float*>(out[0]) + first;
            (last - first == strip_ || !rest_ ? whole_ : rest_)
                ->enqueue(stream, operands, &result, static_cast<char*>(workspace) + beside_);
        }
    }

private:
    static constexpr int64_t kStripBytes = 4 << 20, kLeastColumns = 128;

    int64_t columns() const { return turned_ ? w_.columns() : w_.rows; }  // of the result
    int64_t terms() const { return turned_ ? w_.rows : w_.columns(); }

    int64_t widest_strip() const {
        const int64_t fits = kStripBytes / static_cast<int64_t>(sizeof(float)) / terms();
        return std::max(kLeastColumns, fits / kLeastColumns * kLeastColumns);
    }

    Prepared product(const OpCall& call, int64_t width) const {
        return prepare_product(call, dense_matrix(rows_, terms()), dense_matrix(terms(), width),
                               {rows_, width, columns()});
    }

    const BlockWeights w_;
    const int64_t rows_;  // of x
    const bool turned_;
    const int64_t strip_;
    Prepared whole_, rest_;
    size_t beside_ = 0;
};

Prepared prepare_matmul_of_blocks(const OpCall& call, std::span<const Type> outputs) {
    constexpr int64_t kFewRows = 16;
    const BlockWeights w = runtime::block_weights_of(call);
    const bool turned = call.flag("transposed");
    const int64_t terms = turned ? w.rows : w.columns();
    if (outputs[0].numel() == 0 || terms == 0) return make_zeros(outputs);
    const int64_t rows = call.inputs[0].numel() / terms;
    if (!turned && rows <= kFewRows) return by_rows(w, rows);
    return std::make_shared<const StripsExecutable>(call, w, rows, turned);
}

}  // namespace

void register_block_weight_kernels() {
    register_kernel("dequantize_blocks", prepare_dequantize);
    register_kernel("matmul_of_blocks", prepare_matmul_of_blocks);
}

}  // namespace megjit::cpu
