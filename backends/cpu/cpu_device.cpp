#include "backends/cpu/cpu_device.h"

#include <cstring>
#include <map>
#include <string>

#include "backends/cpu/vm.h"
#include "runtime/parallel.h"

namespace megjit::cpu {

// One line a file of kernels.
void register_copy_kernels();
void register_index_kernels();
void register_reduce_kernels();
void register_sort_kernels();
void register_random_kernels();
void register_linalg_kernels();
void register_conv_kernels();
void register_matmul_kernels();
void register_norm_kernels();
void register_pool_kernels();
void register_softmax_kernels();

namespace {

using namespace runtime;

std::map<std::string, Prepare, std::less<>>& kernels() {
    static std::map<std::string, Prepare, std::less<>> table;
    return table;
}

void register_all_kernels() {
    register_copy_kernels();
    register_index_kernels();
    register_reduce_kernels();
    register_sort_kernels();
    register_random_kernels();
    register_linalg_kernels();
    register_conv_kernels();
    register_matmul_kernels();
    register_norm_kernels();
    register_pool_kernels();
    register_softmax_kernels();
}

// Rank 1: the kernel takes elements, cut at cache lines. Otherwise it takes rows.
class KernelLaunch final : public Executable {
public:
    KernelLaunch(codegen::KernelFn fn, const codegen::KernelIR& kernel, const codegen::LaunchShape& launch)
        : fn_(fn), kernel_(kernel), launch_(launch), count_(codegen::units(kernel, launch)) {
        constexpr int64_t kGrainElements = 32768;
        const int64_t row = std::max<int64_t>(1, launch.numel() / std::max<int64_t>(1, count_));
        // Long programs are worth a second thread sooner.
        const int64_t weight = 1 + kernel.program.size() / 16;
        grain_ = std::max<int64_t>(1, kGrainElements / weight / row);
        align_ = kernel.rank == 1 && kernel.reduced == 0 ? 64 : 1;
        if (launch.numel() == 0) count_ = 0;
    }

    void run(void* const* inputs, void* const* outputs, void*) const override {
        parallel_for(count_, grain_, align_, [&](int64_t lo, int64_t hi) {
            fn_(inputs, outputs, launch_.extents.data(), launch_.strides.data(), lo, hi);
        });
    }

    bool may_alias(int out, int in) const override { return codegen::may_lie_on(kernel_, launch_, out, in); }

private:
    codegen::KernelFn fn_;
    codegen::KernelIR kernel_;
    codegen::LaunchShape launch_;
    int64_t count_ = 0, grain_ = 1, align_ = 1;
};

std::string types_of(std::span<const Type> types) {
    std::string text;
    for (const Type& type : types) text += (text.empty() ? "" : ", ") + to_string(type);
    return text;
}

}  // namespace

void register_kernel(std::string_view op, Prepare prepare) { kernels().insert_or_assign(std::string(op), prepare); }

CpuDevice::CpuDevice(std::unique_ptr<Allocator> allocator) : allocator_(std::move(allocator)) {
    register_all_kernels();
    codegen::set_launcher(name(), launch_kernel);
}

std::shared_ptr<const Executable> CpuDevice::prepare(const OpCall& call, std::span<const Type> outputs) {
    if (call.op.is_elementwise()) {
        const codegen::BoundKernel bound = codegen::elementwise_kernel(call, outputs[0]);
        return prepare_vm(bound.kernel, bound.launch);
    }
    if (const auto found = kernels().find(call.op.name); found != kernels().end())
        if (auto executable = found->second(call, outputs)) return executable;
    user_error({.what = cat(call.op.name, ": the CPU has no kernel for ", types_of(call.inputs)),
                .fix = "cast the inputs to float32"},
               ErrorKind::type);
}

void CpuDevice::copy_to_host(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void CpuDevice::copy_from_host(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

std::shared_ptr<const Executable> launch_kernel(codegen::KernelFn fn, const codegen::KernelIR& kernel, const codegen::LaunchShape& launch) {
    return std::make_shared<const KernelLaunch>(fn, kernel, launch);
}

}  // namespace megjit::cpu
