#include "backends/cpu/kernels/quantized_conv.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "backends/cpu/instructions.h"
#include "backends/cpu/kernels/integer_conv.h"
#include "backends/cpu/kernels/recurrent_cells.h"
#include "runtime/host/error.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

// Rows [images * channels][width] of bytes, each with a kernel of its own, in steps of 1.
struct DepthwiseRow {
    static constexpr int64_t kMostWidth = 4096, kMostTaps = 512;  // 16 KB of the stack

    int64_t width = 0, places = 0, taps = 0, dilation = 1;
};

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/depthwise_bytes.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

// Copies of the last packed weights show whether they are still the same: comparing reads each
// byte once, while packing takes some nanoseconds for each. Layers of one shape share an
// executable.
class PackingExecutable final : public runtime::Executable {
public:
    PackingExecutable(Prepared conv, Prepared pack, size_t dense_bytes, size_t packed_bytes)
        : conv_(std::move(conv)),
          pack_(std::move(pack)),
          dense_bytes_(dense_bytes),
          packed_bytes_(packed_bytes) {}

    size_t workspace_bytes() const override {
        return std::max(conv_->workspace_bytes(), pack_->workspace_bytes());
    }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const std::shared_ptr<const Weights> weights = weights_at(inputs[1], workspace);
        void* const operands[] = {inputs[0], weights->packed.get(), inputs[2], inputs[3]};
        conv_->enqueue(stream, operands, outputs, workspace);
    }

private:
    static constexpr size_t kMostKept = 16;

    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    using Bytes = std::unique_ptr<void, Free>;
    struct Weights {
        const void* from = nullptr;
        Bytes dense, packed;
    };
    using Kept = std::vector<std::shared_ptr<const Weights>>;  // the oldest first

    std::shared_ptr<const Weights> weights_at(const void* dense, void* workspace) const {
        const std::shared_ptr<const Kept> kept = kept_.load();
        if (kept)
            for (const auto& weights : *kept)
                if (weights->from == dense &&
                    std::memcmp(weights->dense.get(), dense, dense_bytes_) == 0)
                    return weights;
        Kept now = kept ? *kept : Kept();
        std::erase_if(now, [&](const auto& weights) { return weights->from == dense; });
        if (now.size() == kMostKept) now.erase(now.begin());
        now.push_back(packed(dense, workspace));
        kept_.store(std::make_shared<const Kept>(now));
        return now.back();
    }

    static Bytes bytes(size_t count) {
        constexpr size_t kAlign = 64;
        Bytes made(std::aligned_alloc(kAlign, (count + kAlign) / kAlign * kAlign));
        if (!made)
            throw runtime::DeviceError(runtime::cat("quantized_conv: out of memory for ", count,
                                                    " bytes of packed weights"));
        return made;
    }

    std::shared_ptr<const Weights> packed(const void* dense, void* workspace) const {
        auto made =
            std::make_shared<Weights>(Weights{dense, bytes(dense_bytes_), bytes(packed_bytes_)});
        std::memcpy(made->dense.get(), dense, dense_bytes_);
        void* from = made->dense.get();
        void* to = made->packed.get();
        pack_->enqueue(runtime::inline_stream(), &from, &to, workspace);
        return made;
    }

    Prepared conv_, pack_;
    size_t dense_bytes_ = 0, packed_bytes_ = 0;
    mutable std::atomic<std::shared_ptr<const Kept>> kept_;
};

template <class T>
class FewByteRowsExecutable final : public runtime::Executable {
public:
    explicit FewByteRowsExecutable(const runtime::ConvProblem& p, bool is_one_scale)
        : rows_(rows_of(p)),
          inner_(p.x.shape[1]),
          columns_(p.w.shape[0]),
          is_one_scale_(is_one_scale) {}
    size_t workspace_bytes() const override {
        return static_cast<size_t>(rows_ * stride_of_byte_rows(inner_));
    }
    void enqueue(runtime::Stream&, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        auto* const terms = static_cast<uint8_t*>(workspace);
        const int origin =
            lay_out_byte_rows(static_cast<const T*>(inputs[0]), rows_, inner_, terms);
        multiply_byte_rows({.rows = rows_,
                            .inner = inner_,
                            .columns = columns_,
                            .x = terms,
                            .origin = origin,
                            .w = static_cast<const int8_t*>(inputs[1]),
                            .scale = static_cast<const float*>(inputs[2]),
                            .is_one_scale = is_one_scale_,
                            .shift = static_cast<const float*>(inputs[3]),
                            .y = static_cast<float*>(outputs[0])});
    }

private:
    int64_t rows_, inner_, columns_;
    bool is_one_scale_;
};

// Does depthwise_bytes.inl compute it? A library would turn images channels-last and back.
bool is_depthwise_row(const runtime::ConvProblem& p) {
    const runtime::Window& window = p.window;
    const bool is_row = window.dims == 1 && window.stride[0] == 1 && window.padding[0] == 0 &&
                        p.x.layout == runtime::Layout::row_major &&
                        p.y.layout == runtime::Layout::row_major;
    return is_row && p.groups == p.x.shape[1] && p.groups == p.y.shape[1] &&
           p.y.dtype == runtime::DType::f32 && p.steps.empty() &&
           p.x.shape[2] <= DepthwiseRow::kMostWidth && window.kernel[0] <= DepthwiseRow::kMostTaps;
}

template <class T>
Prepared depthwise_rows(const runtime::ConvProblem& p, bool is_one_scale) {
    constexpr int64_t kGrain = 1 << 16;  // this many products are worth a thread
    const DepthwiseRow s{p.x.shape[2], p.y.shape[2], p.window.kernel[0], p.window.dilation[0]};
    const int64_t channels = p.groups, rows = p.x.shape[0] * channels;
    return executable([=](void* const* in, void* const* out, void*) {
        const auto *scale = static_cast<const float*>(in[2]),
                   *shift = static_cast<const float*>(in[3]);
        runtime::parallel_for(rows, std::max<int64_t>(1, kGrain / (s.places * s.taps)), 1,
                              [&](int64_t lo, int64_t hi) {
            for (int64_t row = lo; row < hi; ++row) {
                const int64_t channel = row % channels;
                MEGJIT_BEST(convolve_row<T>)(s, static_cast<const T*>(in[0]) + row * s.width,
                                             static_cast<const int8_t*>(in[1]) + channel * s.taps,
                                             scale[is_one_scale ? 0 : channel], shift[channel],
                                             static_cast<float*>(out[0]) + row * s.places);
            }
        });
    });
}

}  // namespace

bool is_product_of_rows(const runtime::ConvProblem& p) {
    const auto has_rows = [](const runtime::Type& type) {
        return type.layout == runtime::Layout::channels_last ||
               (type.layout == runtime::Layout::row_major &&
                type.numel() == type.shape[0] * type.shape[1]);
    };
    return runtime::is_pointwise(p) && has_rows(p.x) && has_rows(p.y);
}

Prepared prepare_without_packing(const runtime::OpCall& call, const runtime::ConvProblem& p) {
    constexpr int64_t kFewRows = 12;
    const bool is_one_scale = call.inputs[2].numel() == 1;
    const bool is_unsigned = p.x.dtype == runtime::DType::u8;
    if (is_depthwise_row(p))
        return is_unsigned ? depthwise_rows<uint8_t>(p, is_one_scale)
                           : depthwise_rows<int8_t>(p, is_one_scale);
    if (!is_product_of_rows(p) || rows_of(p) > kFewRows || p.y.dtype != runtime::DType::f32 ||
        !p.steps.empty())
        return nullptr;
    if (is_unsigned) return std::make_shared<const FewByteRowsExecutable<uint8_t>>(p, is_one_scale);
    return std::make_shared<const FewByteRowsExecutable<int8_t>>(p, is_one_scale);
}

Prepared with_last_packed(Prepared conv, Prepared pack, size_t dense_bytes, size_t packed_bytes) {
    return std::make_shared<const PackingExecutable>(std::move(conv), std::move(pack), dense_bytes,
                                                     packed_bytes);
}

Prepared prepare_plain_quantized_conv(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs) {
    if (outputs[0].numel() == 0) return make_zeros(outputs);
    const runtime::ConvProblem problem = runtime::conv_problem(call, outputs);
    if (Prepared few = prepare_without_packing(call, problem)) return few;
    IntegerPack made = prepare_integer_pack(call, outputs);
    return with_last_packed(prepare_integer_conv(call, outputs), std::move(made.pack),
                            call.inputs[1].bytes(), made.packed_bytes);
}

}  // namespace megjit::cpu
