#include "backends/cpu/kernels/quantized_conv.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "backends/cpu/kernels/integer_conv.h"
#include "runtime/host/error.h"

namespace megjit::cpu {
namespace {

// A copy of the last packed weights shows whether they are still the same: comparing reads each
// byte once, while packing takes some nanoseconds for each.
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
        std::shared_ptr<const Weights> weights = last_.load();
        if (!weights || std::memcmp(weights->dense.get(), inputs[1], dense_bytes_) != 0) {
            weights = packed(inputs[1], workspace);
            last_.store(weights);
        }
        void* const operands[] = {inputs[0], weights->packed.get(), inputs[2], inputs[3]};
        conv_->enqueue(stream, operands, outputs, workspace);
    }

private:
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    using Bytes = std::unique_ptr<void, Free>;
    struct Weights {
        Bytes dense, packed;
    };

    static Bytes bytes(size_t count) {
        constexpr size_t kAlign = 64;
        Bytes made(std::aligned_alloc(kAlign, (count + kAlign) / kAlign * kAlign));
        if (!made)
            throw runtime::DeviceError(runtime::cat("quantized_conv: out of memory for ", count,
                                                    " bytes of packed weights"));
        return made;
    }

    std::shared_ptr<const Weights> packed(const void* dense, void* workspace) const {
        auto made = std::make_shared<Weights>(Weights{bytes(dense_bytes_), bytes(packed_bytes_)});
        std::memcpy(made->dense.get(), dense, dense_bytes_);
        void* from = made->dense.get();
        void* to = made->packed.get();
        pack_->enqueue(runtime::inline_stream(), &from, &to, workspace);
        return made;
    }

    Prepared conv_, pack_;
    size_t dense_bytes_ = 0, packed_bytes_ = 0;
    mutable std::atomic<std::shared_ptr<const Weights>> last_;
};

}  // namespace

Prepared with_last_packed(Prepared conv, Prepared pack, size_t dense_bytes, size_t packed_bytes) {
    return std::make_shared<const PackingExecutable>(std::move(conv), std::move(pack), dense_bytes,
                                                     packed_bytes);
}

Prepared prepare_plain_quantized_conv(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs) {
    if (outputs[0].numel() == 0) return make_zeros(outputs);
    IntegerPack made = prepare_integer_pack(call, outputs);
    return with_last_packed(prepare_integer_conv(call, outputs), std::move(made.pack),
                            call.inputs[1].bytes(), made.packed_bytes);
}

}  // namespace megjit::cpu
