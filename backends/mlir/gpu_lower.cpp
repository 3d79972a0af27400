#include "backends/mlir/gpu_lower.h"

#include "backends/mlir/emit.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"
#include "runtime/host/error.h"

namespace megjit::mlir_backend {

using namespace mlir;

struct GpuLowering::State {
    MLIRContext context{MLIRContext::Threading::DISABLED};
    std::unique_ptr<LLVMTypeConverter> types;
    FrozenRewritePatternSet math, all;

    State() {
        DialectRegistry registry;
        registry
            .insert<arith::ArithDialect, cf::ControlFlowDialect, gpu::GPUDialect, LLVM::LLVMDialect,
                    NVVM::NVVMDialect, math::MathDialect, scf::SCFDialect, vector::VectorDialect>();
        registerBuiltinDialectTranslation(registry);
        registerGPUDialectTranslation(registry);
        registerLLVMDialectTranslation(registry);
        registerNVVMDialectTranslation(registry);
        context.appendDialectRegistry(registry);
        context.loadAllAvailableDialects();
        LowerToLLVMOptions options(&context);
        options.overrideIndexBitwidth(64);
        types = std::make_unique<LLVMTypeConverter>(&context, options);
        configureGpuToNVVMTypeConverter(*types);
        RewritePatternSet first(&context), then(&context);
        arith::populateArithToLLVMConversionPatterns(*types, first);
        populateMathToLLVMConversionPatterns(*types, first);
        math = FrozenRewritePatternSet(std::move(first));
        populateSCFToControlFlowConversionPatterns(then);
        cf::populateControlFlowToLLVMConversionPatterns(*types, then);
        arith::populateArithToLLVMConversionPatterns(*types, then);
        populateVectorToLLVMConversionPatterns(*types, then);
        populateGpuToNVVMConversionPatterns(*types, then);
        all = FrozenRewritePatternSet(std::move(then));
    }
};

// Makes the kernel's pointer that of a table among the parameters. (The patterns of the gpu dialect
// drop attributes of arguments.)
static void pass_table_by_value(gpu::GPUModuleOp device, int words) {
    auto kernel = device.lookupSymbol<LLVM::LLVMFuncOp>(kKernelSymbol);
    OpBuilder b(device.getContext());
    const auto table = LLVM::LLVMArrayType::get(b.getI64Type(), static_cast<unsigned>(words));
    kernel.setArgAttr(0, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(table));
    kernel.setArgAttr(0, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(8));
    kernel.setArgAttr(0, NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
}

GpuLowering::GpuLowering() : state_(std::make_unique<State>()) {}
GpuLowering::~GpuLowering() = default;

std::unique_ptr<llvm::Module> GpuLowering::lower(const codegen::KernelIR& kernel,
                                                 const codegen::GpuPlan& plan,
                                                 llvm::LLVMContext& context) {
    std::string said;
    const ScopedDiagnosticHandler listen(&state_->context, [&](Diagnostic& diagnostic) {
        said += diagnostic.str() + "\n";
        return success();
    });
    OwningOpRef<ModuleOp> module = emit_gpu(state_->context, kernel, plan);
    const auto device = module->lookupSymbol<gpu::GPUModuleOp>(kGpuModule);
    // Ops that have an intrinsic are converted first: the patterns of the gpu dialect would call
    // libdevice for them.
    ConversionTarget has_intrinsics(state_->context);
    has_intrinsics.addIllegalDialect<math::MathDialect>();
    has_intrinsics.addIllegalOp<arith::MaxNumFOp>();
    has_intrinsics.markUnknownOpDynamicallyLegal([](Operation*) { return true; });
    LLVMConversionTarget legal(state_->context);
    legal.addLegalDialect<NVVM::NVVMDialect>();
    legal.addLegalOp<gpu::GPUModuleOp>();
    if (failed(applyPartialConversion(device, has_intrinsics, state_->math)) ||
        failed(applyFullConversion(device, legal, state_->all)))
        throw runtime::InternalError("MLIR: cannot lower a kernel to the nvvm dialect: " + said);
    if (plan.joins) pass_table_by_value(device, codegen::launch_table_of(kernel).size());
    std::unique_ptr<llvm::Module> result = translateModuleToLLVMIR(device, context, "megjit");
    if (!result)
        throw runtime::InternalError("MLIR: cannot translate a kernel to LLVM IR: " + said);
    return result;
}

}  // namespace megjit::mlir_backend
