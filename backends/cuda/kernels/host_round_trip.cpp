#include "backends/cuda/kernels/host_round_trip.h"

#include <algorithm>
#include <mutex>

namespace megjit::cuda {
namespace {

class HostRoundTrip final : public runtime::Executable {
public:
    HostRoundTrip(CudaDevice& device, const OpCall& call, std::span<const Type> outputs)
        : kernel_(runtime::host_device().prepare(call, outputs)) {
        size_t bytes = 0;
        std::vector<size_t> offsets;
        const auto place = [&](size_t size) {
            offsets.push_back(bytes);
            sizes_.push_back(size);
            bytes += aligned(size);
        };
        for (const Type& type : call.inputs) place(type.bytes());
        for (const Type& type : outputs) place(type.bytes());
        place(kernel_->workspace_bytes());
        memory_ = device.host_memory(std::max<size_t>(bytes, 1));  // empty tensors need none
        for (const size_t offset : offsets) places_.push_back(memory_.get() + offset);
        inputs_ = call.inputs.size();
        outputs_ = outputs.size();
    }

    ~HostRoundTrip() override {
        if (last_) last_->wait_until_idle();  // the last run may still use the memory
    }

    void enqueue(runtime::Stream& given, void* const* inputs, void* const* outputs,
                 void*) const override {
        auto& stream = dynamic_cast<CudaStream&>(given);
        const std::lock_guard lock(mutex_);
        if (last_ && last_ != &stream) last_->wait_until_idle();
        last_ = &stream;
        for (size_t i = 0; i < inputs_; ++i) stream.download(places_[i], inputs[i], sizes_[i]);
        stream.call([kernel = kernel_, memory = memory_, places = places_, first = inputs_] {
            kernel->enqueue(runtime::inline_stream(), places.data(), places.data() + first,
                            places.back());
        });
        for (size_t i = inputs_; i < inputs_ + outputs_; ++i)
            stream.upload(outputs[i - inputs_], places_[i], sizes_[i], true);
    }

private:
    Prepared kernel_;
    std::shared_ptr<std::byte[]> memory_;  // runs use it one after the other
    std::vector<void*> places_;  // where inputs, outputs and the kernel's workspace are
    std::vector<size_t> sizes_;
    size_t inputs_ = 0, outputs_ = 0;
    mutable std::mutex mutex_;
    mutable CudaStream* last_ = nullptr;
};

}  // namespace

Prepared host_round_trip(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    return std::make_shared<const HostRoundTrip>(device, call, outputs);
}

}  // namespace megjit::cuda
