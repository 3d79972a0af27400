#include "backends/mlir/gpu_machine.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"
#include "runtime/host/error.h"

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace megjit::mlir_backend {
namespace {

using runtime::cat;

// The oldest version of PTX that knows the architecture, but at least 8.0 (CUDA 12.0): drivers also
// read versions older than themselves.
struct Arch {
    int number;
    int ptx;
};
constexpr Arch kArchs[] = {{70, 80}, {75, 80},  {80, 80},  {86, 80},  {89, 80},
                           {90, 80}, {100, 86}, {103, 88}, {120, 87}, {121, 88}};

std::unique_ptr<llvm::TargetMachine> machine_for(int arch) {
    static const bool is_initialized = [] {
        LLVMInitializeNVPTXTargetInfo();
        LLVMInitializeNVPTXTarget();
        LLVMInitializeNVPTXTargetMC();
        LLVMInitializeNVPTXAsmPrinter();
        return true;
    }();
    (void)is_initialized;
    const auto newer =
        std::upper_bound(std::begin(kArchs), std::end(kArchs), arch,
                         [](int number, const Arch& it) { return number < it.number; });
    if (newer == std::begin(kArchs))
        throw runtime::DeviceError(cat("MLIR: kernels are not compiled for sm_", arch,
                                       "; the oldest is sm_", std::begin(kArchs)->number));
    const Arch& chosen = newer[-1];
    const llvm::Triple triple("nvptx64-nvidia-cuda");
    std::string why;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, why);
    if (!target) throw runtime::DeviceError("LLVM: " + why);
    // Strict: every addition and multiplication has an explicit rounding, so that the driver
    // contracts none either.
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
        triple, cat("sm_", chosen.number), cat("+ptx", chosen.ptx), options, std::nullopt,
        std::nullopt, llvm::CodeGenOptLevel::Default));
}

void optimize(llvm::Module& module, llvm::TargetMachine& target) {
    module.setDataLayout(target.createDataLayout());
    module.setTargetTriple(target.getTargetTriple());
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager sccs;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder builder(&target);
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(sccs);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, sccs, modules);
    builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

}  // namespace

void optimize_for_gpu(llvm::Module& module, int arch) { optimize(module, *machine_for(arch)); }

std::string to_ptx(llvm::Module& module, int arch) {
    const std::unique_ptr<llvm::TargetMachine> target = machine_for(arch);
    optimize(module, *target);
    llvm::SmallVector<char, 0> text;
    llvm::raw_svector_ostream out(text);
    llvm::legacy::PassManager passes;
    if (target->addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile))
        throw runtime::DeviceError("LLVM: NVPTX has no code generator for PTX");
    passes.run(module);
    return {text.data(), text.size()};
}

}  // namespace megjit::mlir_backend
