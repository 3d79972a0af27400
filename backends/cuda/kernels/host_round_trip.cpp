#include "backends/cuda/kernels/host_round_trip.h"

#include <mutex>

namespace megjit::cuda {
namespace {

class HostRoundTrip final : public runtime::Executable {
public:
    HostRoundTrip(Gpu& gpu, const OpCall& call, std::span<const Type> outputs)
        : gpu_(gpu), kernel_(runtime::host_device().prepare(call, outputs)) {
        size_t bytes = 0;
        const auto place = [&](size_t size) { return std::exchange(bytes, bytes + aligned(size)); };
        std::vector<size_t> in, out;
        for (const Type& type : call.inputs) in.push_back(place(sizes_.emplace_back(type.bytes())));
        for (const Type& type : outputs) out.push_back(place(sizes_.emplace_back(type.bytes())));
        const size_t workspace = place(kernel_->workspace_bytes());
        gpu.make_current();
        void* staging = nullptr;
        gpu.driver().check(
            gpu.driver().call().allocate_host(&staging, std::max<size_t>(bytes, 1), 0),
            "cuMemHostAlloc");
        staging_ = staging;
        for (const size_t offset : in) inputs_.push_back(offset_by(offset));
        for (const size_t offset : out) outputs_.push_back(offset_by(offset));
        workspace_ = offset_by(workspace);
    }
    ~HostRoundTrip() override try {
        if (last_) last_->wait_until_idle();
        gpu_.make_current();
        gpu_.driver().call().free_host(staging_);
    } catch (const runtime::DeviceError&) {}  // a child of fork() leaves it to the parent

    void enqueue(runtime::Stream& given, void* const* inputs, void* const* outputs,
                 void*) const override {
        auto& stream = dynamic_cast<CudaStream&>(given);
        const std::lock_guard lock(mutex_);
        if (last_ && last_ != &stream) last_->wait_until_idle();  // it may still use the memory
        last_ = &stream;
        for (size_t i = 0; i < inputs_.size(); ++i)
            stream.download(inputs_[i], inputs[i], sizes_[i]);
        stream.call([kernel = kernel_, in = inputs_, out = outputs_, workspace = workspace_] {
            kernel->enqueue(runtime::inline_stream(), in.data(), out.data(), workspace);
        });
        for (size_t i = 0; i < outputs_.size(); ++i)
            stream.upload(outputs[i], outputs_[i], sizes_[inputs_.size() + i], true);
    }

private:
    void* offset_by(size_t bytes) { return at(staging_, static_cast<int64_t>(bytes)); }

    Gpu& gpu_;
    Prepared kernel_;
    void* staging_ = nullptr;  // pinned: used by one run after the other
    std::vector<size_t> sizes_;  // of inputs, then of outputs
    std::vector<void*> inputs_, outputs_;
    void* workspace_ = nullptr;
    mutable std::mutex mutex_;
    mutable CudaStream* last_ = nullptr;
};

}  // namespace

Prepared host_round_trip(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    return std::make_shared<const HostRoundTrip>(device.gpu(), call, outputs);
}

}  // namespace megjit::cuda
