#include "backends/halide/gpu_compiler.h"

#include "backends/halide/abi.h"
#include "codegen/loops/loops.h"
#include "runtime/host/error.h"

namespace megjit::halide_backend {

using namespace codegen;
using runtime::cat;
using runtime::DeviceError;

namespace {

// All indices have 64 bits, elements are read one by one, and a block is one team: Halide's only
// barrier is the block's.
GpuPlan plan_of(const KernelIR& kernel, const LaunchShape& launch, CodeTarget target) {
    GpuPlan plan = single_team_plan_of(kernel, launch, target);
    plan.vector = 1;
    plan.joins = false;  // Halide's kernels take single addresses
    plan.tensor_cores = false;  // Halide has no instruction for a warp's products
    if (plan.cover == Cover::rows) plan.threads = plan.team;
    return plan;
}

// Bytes that the loops share: Halide puts them into dynamic shared memory.
uint32_t shared_bytes(const KernelIR& kernel, const GpuPlan& plan) {
    int64_t bytes = 0;
    const loops::Function function = loops::loops_of(kernel, {.gpu = plan});
    for (const loops::Function::Room& room : function.rooms)
        bytes += room.elements * loops::bytes_of(function.type_of(room.value).kind);
    return static_cast<uint32_t>(bytes);
}

}  // namespace

std::string HalideGpuCompiler::variant(const KernelIR& kernel, const LaunchShape& launch,
                                       CodeTarget target) const {
    return print(plan_of(kernel, launch, target));
}

std::string HalideGpuCompiler::source(const KernelIR& kernel, const LaunchShape& launch,
                                      CodeTarget target) {
    const int arch = target.gpu_arch;
    if (arch < 80)
        throw DeviceError(cat("HALIDE: its kernels need a GPU of compute capability 8.0, not ",
                              arch / 10, ".", arch % 10));
    const GpuPlan plan = plan_of(kernel, launch, target);
    const megjit_halide_gpu gpu{static_cast<int32_t>(plan.cover), plan.threads, plan.team,
                                plan.tile, plan.rows_lie_along_sum};
    const std::string text = print(kernel);
    std::string result;
    const auto append = [](void* to, const char* data, size_t bytes) {
        static_cast<std::string*>(to)->append(data, bytes);
    };
    const auto to_ptx = reinterpret_cast<decltype(&megjit_halide_ptx)>(host_.function("_ptx"));
    if (to_ptx(text.data(), text.size(), &gpu, append, &result) != 0)
        throw DeviceError(cat("HALIDE: cannot compile a kernel for a GPU: ", result, "\n", text));
    return result;
}

GpuImage HalideGpuCompiler::compile(const KernelIR& kernel, const LaunchShape& launch,
                                    CodeTarget target) {
    const GpuPlan plan = plan_of(kernel, launch, target);
    GpuImage image = image_of(kernel, plan);
    image.code = source(kernel, launch, target);
    image.is_ptx = true;
    image.shared_bytes = shared_bytes(kernel, plan);
    image.alignment = 1;  // elements are read one by one
    return image;
}

}  // namespace megjit::halide_backend
