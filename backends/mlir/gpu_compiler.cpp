#include "backends/mlir/gpu_compiler.h"

namespace megjit::mlir_backend {

using namespace codegen;

// All indices have 64 bits. A row is the work of one team.
GpuPlan mlir_gpu_plan_of(const KernelIR& kernel, const LaunchShape& launch) {
    GpuPlan plan = gpu_plan_of(kernel, launch);
    plan.wide = true;
    plan.parts = 1;
    // A thread of a block of 1024 has 64 registers, which several reductions at once do not fit in.
    if (plan.threads > 256 && kernel.reductions.size() > 1) {
        plan.team = plan.cover == Cover::columns ? 8 : 256;
        plan.threads = 256;
    }
    return plan;
}

GpuImage mlir_gpu_image_of(const GpuPlan& plan) {
    GpuImage image;
    image.cover = plan.cover;
    image.per_block =
        plan.cover == Cover::elements ? int64_t{plan.threads} * plan.vector : plan.slots();
    image.block[0] = static_cast<uint32_t>(plan.threads);
    image.is_ptx = true;
    return image;
}

std::string MlirGpuCompiler::variant(const KernelIR& kernel, const LaunchShape& launch) const {
    return print(mlir_gpu_plan_of(kernel, launch));
}

GpuImage MlirGpuCompiler::compile(const KernelIR& kernel, const LaunchShape& launch,
                                  CodeTarget target) {
    const GpuPlan plan = mlir_gpu_plan_of(kernel, launch);
    GpuImage image = mlir_gpu_image_of(plan);
    image.code = plugin_.compile_for_gpu(kernel, plan, target.gpu_arch);
    return image;
}

std::string MlirGpuCompiler::source(const KernelIR& kernel, const LaunchShape& launch,
                                    CodeTarget target) {
    return plugin_.source_for_gpu(kernel, mlir_gpu_plan_of(kernel, launch), target.gpu_arch);
}

}  // namespace megjit::mlir_backend
