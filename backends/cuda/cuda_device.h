// backends/cuda/cuda_device.h -- CudaDevice: "gpu0:0", and the table in which kernels register for
// their ops.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/cuda_stream.h"
#include "codegen/kernel_device.h"
#include "runtime/core/page_source.h"

namespace megjit::cuda {

class CudaDevice;

// Makes an op ready for given types. Null where there is no kernel for them.
using Prepare = std::shared_ptr<const runtime::Executable> (*)(
    CudaDevice&, const runtime::OpCall&, std::span<const runtime::Type> outputs);
// Does the kernel beat what the op expands to?
using Selects = bool (*)(const runtime::OpCall&);
// `computes_whole`: for which calls passes leave the op as it is, though it can be expanded. Null:
// for none.
void register_kernel(std::string_view op, Prepare prepare, Selects computes_whole = nullptr);

// Functions that higher rooms give to the device.
struct Services {
    // Makes the allocator over the device's pages.
    std::unique_ptr<runtime::Allocator> (*make_allocator)(std::unique_ptr<runtime::PageSource>);
    runtime::ExpandOp expand;
};

// One queue of one GPU. The first of these that serves an op computes it: a hand-written kernel
// that registered for it, a generated kernel, the kernels of the simpler ops that it is made of,
// NVIDIA's libraries. The libraries come before the parts of a product with an epilogue, and before
// our kernel for attention and its parts.
class CudaDevice final : public codegen::KernelDevice {
public:
    CudaDevice(std::shared_ptr<Gpu> gpu, const Services& services)
        : CudaDevice(gpu, services, runtime::cat("gpu", gpu->ordinal(), ":0")) {}

    Gpu& gpu() { return *gpu_; }
    const Gpu& gpu() const { return *gpu_; }
    std::string_view name() const override { return name_; }
    runtime::DeviceInfo info() const override;
    std::unique_ptr<runtime::Device> sibling(std::string name) const override;
    std::unique_ptr<runtime::Device> guest(
        std::string name, std::shared_ptr<runtime::Allocator> memory) const override;
    runtime::Allocator& allocator() override { return *allocator_; }
    runtime::Stream& stream() override { return stream_; }
    runtime::Stream& copy_stream() override { return copy_stream_; }
    bool holds(const void* address) const override { return gpu_->holds(address); }
    std::shared_ptr<std::byte[]> host_memory(size_t bytes) override {
        return gpu_->host_memory(bytes);
    }
    bool shares_rows() const override { return true; }
    runtime::Speeds speeds() const override { return gpu_->speeds(); }
    runtime::CodeTarget target() const override { return gpu_->target(); }
    bool is_for_plans() const override { return !gpu_->compiles(); }
    std::optional<runtime::Queued> rehearse(const runtime::Executable& executable,
                                            void* const* inputs, void* const* outputs,
                                            void* workspace) override;
    bool computes_whole(const runtime::OpCall& call) const override;
    std::shared_ptr<const runtime::Executable> prepare(
        const runtime::OpCall& call, std::span<const runtime::Type> outputs) override;
    std::shared_ptr<const runtime::Executable> prepare_kernel(
        const codegen::KernelIR& kernel, std::vector<codegen::LaunchShape> launches,
        const codegen::CompiledKernel* code) override;

private:
    CudaDevice(std::shared_ptr<Gpu> gpu, const Services& services, std::string name,
               std::shared_ptr<runtime::Allocator> memory = nullptr);

    std::shared_ptr<Gpu> gpu_;
    Services services_;
    std::string name_;
    CudaStream stream_, copy_stream_;
    std::shared_ptr<runtime::Allocator> allocator_;
};

// Registers one device for each GPU that the driver shows, when somebody first asks for a device
// other than the host.
void discover_gpus(const Services& services);

}  // namespace megjit::cuda
