#include "backends/mlir/gpu_compiler.h"

namespace megjit::mlir_backend {

using namespace codegen;

std::string MlirGpuCompiler::variant(const KernelIR& kernel, const LaunchShape& launch,
                                     CodeTarget target) const {
    return print(single_team_plan_of(kernel, launch, target));
}

GpuImage MlirGpuCompiler::compile(const KernelIR& kernel, const LaunchShape& launch,
                                  CodeTarget target) {
    const GpuPlan plan = single_team_plan_of(kernel, launch, target);
    GpuImage image = image_of(kernel, plan);
    image.is_ptx = true;
    image.code = plugin_.compile_for_gpu(kernel, plan, target.gpu_arch);
    return image;
}

std::string MlirGpuCompiler::source(const KernelIR& kernel, const LaunchShape& launch,
                                    CodeTarget target) {
    return plugin_.source_for_gpu(kernel, single_team_plan_of(kernel, launch, target),
                                  target.gpu_arch);
}

}  // namespace megjit::mlir_backend
