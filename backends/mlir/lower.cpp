#include "backends/mlir/lower.h"

#include "backends/mlir/emit.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"
#include "runtime/host/error.h"

namespace megjit::mlir_backend {

using namespace mlir;

struct Lowering::State {
    MLIRContext context{MLIRContext::Threading::DISABLED};
    std::unique_ptr<LLVMTypeConverter> types;
    FrozenRewritePatternSet patterns;

    State() {
        DialectRegistry registry;
        registry.insert<arith::ArithDialect, cf::ControlFlowDialect, LLVM::LLVMDialect,
                        math::MathDialect, scf::SCFDialect, vector::VectorDialect>();
        registerBuiltinDialectTranslation(registry);
        registerLLVMDialectTranslation(registry);
        context.appendDialectRegistry(registry);
        context.loadAllAvailableDialects();
        types = std::make_unique<LLVMTypeConverter>(&context);
        // One conversion handles all dialects: a pass pipeline would walk the kernel once for each.
        RewritePatternSet all(&context);
        populateSCFToControlFlowConversionPatterns(all);
        cf::populateControlFlowToLLVMConversionPatterns(*types, all);
        arith::populateArithToLLVMConversionPatterns(*types, all);
        populateMathToLLVMConversionPatterns(*types, all);
        populateVectorToLLVMConversionPatterns(*types, all);
        patterns = FrozenRewritePatternSet(std::move(all));
    }
};

Lowering::Lowering() : state_(std::make_unique<State>()) {}
Lowering::~Lowering() = default;

std::unique_ptr<llvm::Module> Lowering::lower(const codegen::KernelIR& kernel,
                                              const VectorTarget& target,
                                              llvm::LLVMContext& context) {
    std::string said;
    const ScopedDiagnosticHandler listen(&state_->context, [&](Diagnostic& diagnostic) {
        said += diagnostic.str() + "\n";
        return success();
    });
    OwningOpRef<ModuleOp> module = emit(state_->context, kernel, target);
    LLVMConversionTarget legal(state_->context);
    legal.addLegalOp<ModuleOp>();
    if (failed(applyFullConversion(module->getOperation(), legal, state_->patterns)))
        throw runtime::InternalError("MLIR: cannot lower a kernel to the llvm dialect: " + said);
    std::unique_ptr<llvm::Module> result = translateModuleToLLVMIR(*module, context, "megjit");
    if (!result)
        throw runtime::InternalError("MLIR: cannot translate a kernel to LLVM IR: " + said);
    return result;
}

}  // namespace megjit::mlir_backend
