#include "backends/cuda/cuda_device.h"

#include <algorithm>
#include <map>

#include "backends/cuda/generated_kernel.h"
#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/product_kernel.h"
#include "backends/cuda/products/cudnn_problems.h"
#include "codegen/compiler.h"
#include "codegen/disk_cache.h"
#include "codegen/op_kernel.h"
#include "runtime/host/error.h"
#include "runtime/host/product_rules.h"
#include "runtime/ops/known.h"

namespace megjit::cuda {

// There is one line for each file of kernels.
void register_attention_kernels();
void register_collective_kernels();
void register_copy_kernels();
void register_fft_kernels();
void register_index_kernels();
void register_linalg_kernels();
void register_matmul_kernels();
void register_norm_kernels();
void register_pool_kernels();
void register_quantized_conv_kernels();
void register_random_kernels();
void register_sort_kernels();

namespace {

using namespace runtime;

struct Kernel {
    Prepare prepare = nullptr;
    Selects computes_whole = nullptr;
};
std::map<std::string, Kernel, std::less<>>& kernels() {
    static std::map<std::string, Kernel, std::less<>> table;
    return table;
}
Kernel kernel_of(std::string_view op) {
    const auto found = kernels().find(op);
    return found == kernels().end() ? Kernel{} : found->second;
}

void register_all_kernels() {
    register_attention_kernels();
    register_collective_kernels();
    register_copy_kernels();
    register_fft_kernels();
    register_index_kernels();
    register_linalg_kernels();
    register_matmul_kernels();
    register_norm_kernels();
    register_pool_kernels();
    register_quantized_conv_kernels();
    register_random_kernels();
    register_sort_kernels();
}

// Pages are unmapped when no queued work can use them any more.
class Pages final : public PageSource {
public:
    Pages(std::shared_ptr<Gpu> gpu, std::vector<CudaStream*> streams)
        : gpu_(std::move(gpu)), streams_(std::move(streams)) {}
    void* map(size_t bytes) override { return reinterpret_cast<void*>(gpu_->allocate(bytes)); }
    void unmap(void* p, size_t) noexcept override {
        for (CudaStream* stream : streams_) stream->wait_until_idle();
        gpu_->free(reinterpret_cast<Address>(p));
    }
    bool is_host_memory() const override { return false; }

private:
    std::shared_ptr<Gpu> gpu_;
    std::vector<CudaStream*> streams_;
};

}  // namespace

void register_kernel(std::string_view op, Prepare prepare, Selects computes_whole) {
    kernels().insert_or_assign(std::string(op), Kernel{prepare, computes_whole});
}

// `memory`: of a guest.
CudaDevice::CudaDevice(std::shared_ptr<Gpu> gpu, const Services& services, std::string name,
                       std::shared_ptr<Allocator> memory)
    : KernelDevice(false),
      gpu_(std::move(gpu)),
      services_(services),
      name_(std::move(name)),
      stream_(*gpu_, name_, memory.get()),
      copy_stream_(*gpu_, name_),
      allocator_(std::move(memory)) {
    if (!allocator_)
        allocator_ = services.make_allocator(
            std::make_unique<Pages>(gpu_, std::vector<CudaStream*>{&stream_, &copy_stream_}));
    [[maybe_unused]] static const bool once = (register_all_kernels(), true);
}

DeviceInfo CudaDevice::info() const {
    const Gpu::Memory memory = gpu_->memory();
    return {.kind = DeviceKind::gpu,
            .number = gpu_->ordinal(),
            .model = gpu_->name(),
            .total_bytes = memory.total,
            .free_bytes = memory.free};
}

std::unique_ptr<Device> CudaDevice::sibling(std::string name) const {
    return std::unique_ptr<Device>(new CudaDevice(gpu_, services_, std::move(name)));
}

std::unique_ptr<Device> CudaDevice::guest(std::string name,
                                          std::shared_ptr<Allocator> memory) const {
    return std::unique_ptr<Device>(
        new CudaDevice(gpu_, services_, std::move(name), std::move(memory)));
}

// (cuDNN's attention has no gradient for float32, and tensor cores alone compute convolutions with
// more to do.)
bool CudaDevice::computes_whole(const OpCall& call) const {
    const Selects computes = kernel_of(call.op.name).computes_whole;
    if (computes && computes(call)) return true;
    std::string why_not;
    const std::vector<Type> outputs = infer(call);
    const bool is_for_tensor_cores =
        call.inputs[0].dtype != DType::f32 ||
        (runtime::product_rules().tf32 && &call.op == &runtime::ops::conv_backward_data_sums());
    return call.op.has_gpu_product && is_for_tensor_cores &&
           !cudnn::problems_of(call, outputs, &why_not).empty() &&
           (kernel_of(call.op.name).prepare || plans_product(*this, call, outputs));
}

std::shared_ptr<const Executable> CudaDevice::prepare(const OpCall& call,
                                                      std::span<const Type> outputs) {
    const auto written = [&]() -> std::shared_ptr<const Executable> {
        const Prepare prepare = kernel_of(call.op.name).prepare;
        return prepare ? prepare(*this, call, outputs) : nullptr;
    };
    const auto expanded = [&] { return services_.expand(*this, call); };
    const bool is_product = call.op.epilogue || call.op.has_gpu_product;
    if (!call.op.has_gpu_product)
        if (auto executable = written()) return executable;
    if (auto bound = codegen::kernel_of(call, outputs))
        return generated_kernel(*gpu_, bound->kernel, {bound->launch}, true);
    if (!is_product)
        if (auto executable = expanded()) return executable;
    std::string why;
    if (auto product = product_kernel(*this, call, outputs, &why)) return product;
    if (call.op.has_gpu_product)
        if (auto executable = written()) return executable;
    if (is_product)
        if (auto executable = expanded()) {
            if (call.op.contraction)
                codegen::warn_once(cat(
                    call.op.name, " is computed by generated code, which may be slower: ", why));
            return executable;
        }
    const auto is_empty = [](const Type& type) { return type.numel() == 0; };
    if (std::ranges::any_of(call.inputs, is_empty)) return zeros(outputs);
    user_error({.what = cat(call.op.name, ": a GPU has no kernel for ", to_string(call.inputs)),
                .why = why,
                .fix = "compute it on the CPU: x.to('cpu0')"},
               ErrorKind::type);
}

std::shared_ptr<const Executable> CudaDevice::prepare_kernel(
    const codegen::KernelIR& kernel, std::vector<codegen::LaunchShape> launches,
    const codegen::CompiledKernel* code) {
    return generated_kernel(*gpu_, kernel, std::move(launches),
                            !code || code->image || is_for_plans());
}

std::optional<Queued> CudaDevice::rehearse(const Executable& executable, void* const* inputs,
                                           void* const* outputs, void* workspace) {
    if (!is_for_plans() || executable.waits_for_values()) return {};
    return stream_.count([&] { executable.enqueue(stream_, inputs, outputs, workspace); });
}

void discover_gpus(const Services& services) {
    discover_later([services] {
        try {
            static const auto* driver = new CudaDriver;  // never closed
            for (int i = 0; i < driver->device_count(); ++i)
                register_device(
                    std::make_unique<CudaDevice>(std::make_shared<Gpu>(*driver, i), services));
        } catch (const DeviceError& error) { return std::string(error.what()); }
        return std::string();
    });
}

}  // namespace megjit::cuda
