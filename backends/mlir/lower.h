// backends/mlir/lower.h -- from KernelIR to LLVM IR, by way of MLIR.
#pragma once

#include <memory>
#include <string>

#include "codegen/kernel_ir.h"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace megjit::mlir_backend {

struct VectorTarget;

// Not thread-safe: one kernel at a time.
class Lowering {
public:
    Lowering();
    ~Lowering();
    // The kernel as unoptimized LLVM IR. Throws InternalError with MLIR's diagnostics.
    std::unique_ptr<llvm::Module> lower(const codegen::KernelIR& kernel, const VectorTarget& target,
                                        llvm::LLVMContext& context);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace megjit::mlir_backend
