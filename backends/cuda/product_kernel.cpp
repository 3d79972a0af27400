#include "backends/cuda/product_kernel.h"

#include "backends/cuda/cuda_stream.h"
#include "backends/cuda/products/product.h"

namespace megjit::cuda {
namespace {

using runtime::Executable;

std::vector<Address> addresses(void* const* pointers, size_t count) {
    std::vector<Address> list(count);
    for (size_t i = 0; i < count; ++i) list[i] = reinterpret_cast<Address>(pointers[i]);
    return list;
}

class ProductKernel final : public Executable {
public:
    ProductKernel(std::unique_ptr<Product> product, size_t inputs, size_t outputs)
        : product_(std::move(product)), inputs_(inputs), outputs_(outputs) {}
    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const std::vector<Address> in = addresses(inputs, inputs_),
                                   out = addresses(outputs, outputs_);
        const auto scratch = reinterpret_cast<Address>(workspace);
        dynamic_cast<CudaStream&>(stream).run_library(
            product_.get(), in, out, scratch,
            [&](LibraryStream& library) { product_->enqueue(library, in, out, scratch); });
    }
    size_t workspace_bytes() const override { return product_->workspace_bytes(); }

private:
    std::unique_ptr<Product> product_;
    size_t inputs_, outputs_;
};

// The library's plan says what it needs; a kernel of the host computes.
class HostProduct final : public Executable {
public:
    // `seconds`: what a card would take.
    HostProduct(Gpu& gpu, std::shared_ptr<const Executable> kernel, size_t workspace, size_t inputs,
                size_t outputs, double seconds)
        : card_(*gpu.driver().emulation()),
          kernel_(std::move(kernel)),
          workspace_(std::max(workspace, kernel_->workspace_bytes())),
          inputs_(inputs),
          outputs_(outputs),
          seconds_(seconds) {}

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        std::vector<void*> in(inputs_), out(outputs_);
        for (size_t i = 0; i < inputs_; ++i) in[i] = on_host(inputs[i]);
        for (size_t i = 0; i < outputs_; ++i) out[i] = on_host(outputs[i]);
        void* scratch = workspace_ ? on_host(workspace) : nullptr;
        dynamic_cast<CudaStream&>(stream).call([kernel = kernel_, in = std::move(in),
                                                out = std::move(out), scratch, spend = card_.spend,
                                                seconds = seconds_] {
            kernel->enqueue(runtime::inline_stream(), in.data(), out.data(), scratch);
            spend(1e9 * seconds);
        });
    }
    size_t workspace_bytes() const override { return workspace_; }

private:
    void* on_host(void* published) const {
        return published ? card_.host_pointer(reinterpret_cast<Address>(published)) : nullptr;
    }
    const CudaDriver::Emulation& card_;
    std::shared_ptr<const Executable> kernel_;
    size_t workspace_, inputs_, outputs_;
    double seconds_;
};

}  // namespace

std::shared_ptr<const Executable> product_kernel(Gpu& gpu, const runtime::OpCall& call,
                                                 std::span<const runtime::Type> outputs,
                                                 std::string* why_not) {
    auto product = make_product(call, outputs, gpu.description(), {}, why_not);
    if (gpu.driver().emulation())
        return std::make_shared<const HostProduct>(
            gpu, runtime::host_device().prepare(call, outputs),
            product ? product->workspace_bytes() : 0, call.inputs.size(), outputs.size(),
            gpu.speeds().seconds(runtime::cost_of(call, outputs)));
    if (!product) return nullptr;
    return std::make_shared<const ProductKernel>(std::move(product), call.inputs.size(),
                                                 outputs.size());
}

}  // namespace megjit::cuda
