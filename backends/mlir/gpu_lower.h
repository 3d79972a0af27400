// backends/mlir/gpu_lower.h -- from KernelIR to LLVM IR for NVIDIA GPUs, by way of MLIR's gpu and
// nvvm dialects.
#pragma once

#include <memory>
#include <string>

#include "codegen/gpu_plan.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace megjit::mlir_backend {

// Not thread-safe: one kernel at a time.
class GpuLowering {
public:
    GpuLowering();
    ~GpuLowering();
    // The kernel as unoptimized LLVM IR with NVVM intrinsics. Throws InternalError with MLIR's
    // diagnostics.
    std::unique_ptr<llvm::Module> lower(const codegen::KernelIR& kernel,
                                        const codegen::GpuPlan& plan, llvm::LLVMContext& context);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace megjit::mlir_backend
