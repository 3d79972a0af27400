#include "backends/cuda/host_product.h"

#include "backends/cuda/cuda_stream.h"

namespace megjit::cuda {
namespace {

using runtime::Executable;

class HostProduct final : public Executable {
public:
    HostProduct(Gpu& gpu, std::shared_ptr<const Executable> kernel, size_t inputs, size_t outputs)
        : gpu_(gpu), kernel_(std::move(kernel)), inputs_(inputs), outputs_(outputs) {}

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const auto on_host = [this](void* published) {
            return published ? gpu_.driver().emulation()->host_pointer(
                                   reinterpret_cast<Address>(published))
                             : nullptr;
        };
        std::vector<void*> in(inputs_), out(outputs_);
        for (size_t i = 0; i < inputs_; ++i) in[i] = on_host(inputs[i]);
        for (size_t i = 0; i < outputs_; ++i) out[i] = on_host(outputs[i]);
        void* scratch = kernel_->workspace_bytes() ? on_host(workspace) : nullptr;
        dynamic_cast<CudaStream&>(stream).call(
            [kernel = kernel_, in = std::move(in), out = std::move(out), scratch] {
            kernel->enqueue(runtime::inline_stream(), in.data(), out.data(), scratch);
        });
    }
    size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
    bool may_alias(int out, int in) const override { return kernel_->may_alias(out, in); }

private:
    Gpu& gpu_;
    std::shared_ptr<const Executable> kernel_;
    size_t inputs_, outputs_;
};

}  // namespace

std::shared_ptr<const Executable> host_product(Gpu& gpu, const runtime::OpCall& call,
                                               std::span<const runtime::Type> outputs) {
    return std::make_shared<const HostProduct>(gpu, runtime::host_device().prepare(call, outputs),
                                               call.inputs.size(), outputs.size());
}

}  // namespace megjit::cuda
