#include "backends/mlir/machine.h"

#include "backends/mlir/emit.h"
#include "codegen/callable_functions.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCContext.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "runtime/host/error.h"

extern "C" {
void LLVMInitializeX86TargetInfo();
void LLVMInitializeX86Target();
void LLVMInitializeX86TargetMC();
void LLVMInitializeX86AsmPrinter();
void LLVMInitializeAArch64TargetInfo();
void LLVMInitializeAArch64Target();
void LLVMInitializeAArch64TargetMC();
void LLVMInitializeAArch64AsmPrinter();
}

namespace megjit::mlir_backend {
namespace {

using llvm::orc::JITTargetMachineBuilder;
using runtime::cat;
using runtime::DeviceError;

template <class T>
T must(llvm::Expected<T> value, const char* doing) {
    if (!value) throw DeviceError(cat("LLVM: ", doing, ": ", llvm::toString(value.takeError())));
    return std::forward<T>(*value);
}

void must(llvm::Error error, const char* doing) {
    if (error) throw DeviceError(cat("LLVM: ", doing, ": ", llvm::toString(std::move(error))));
}

// A plain CPU of that level. On Arm LLVM is not asked for the model, which it reads in
// /proc/cpuinfo: an emulator does not replace that file.
JITTargetMachineBuilder plain_cpu(runtime::Isa isa) {
    const bool is_arm = runtime::is_arm(isa);
    JITTargetMachineBuilder cpu{
        llvm::Triple(is_arm ? "aarch64-unknown-linux-gnu" : "x86_64-unknown-linux-gnu")};
    cpu.setCPU(is_arm ? "generic" : runtime::has_avx512(isa) ? "x86-64-v4" : "x86-64-v3");
    if (!is_arm) return cpu;
    if (isa >= runtime::Isa::dotprod) cpu.addFeatures({"+lse", "+fullfp16", "+dotprod"});
    if (isa >= runtime::Isa::i8mm) cpu.addFeatures({"+i8mm"});
    if (isa >= runtime::Isa::bf16) cpu.addFeatures({"+bf16"});
    return cpu;
}

// The CPU of this machine, or below its level a plain one.
JITTargetMachineBuilder this_cpu(runtime::Isa isa) {
    if (isa < runtime::machine_isa() || runtime::is_arm(isa)) return plain_cpu(isa);
    return must(JITTargetMachineBuilder::detectHost(), "looking at this CPU");
}

VectorTarget vectors_of(runtime::Isa isa) {
    if (runtime::is_arm(isa)) return {.native = 4, .registers = 32};
    if (runtime::has_avx512(isa)) return {.native = 16, .registers = 32, .truncates = true};
    return {.native = 8, .registers = 16, .truncates = true};
}

// Turns off passes that gain nothing here but take a quarter of the compile time: addresses are
// sums of a base and an index already, and the loops have their instructions in the order that
// keeps a CPU busy (loops::spread_chains).
void start_llvm() {
    static const bool is_started = [] {
        const char* const arguments[] = {"megjit", "-disable-lsr", "-disable-post-ra",
                                         "-enable-misched=false", "-pre-RA-sched=source"};
        llvm::cl::ParseCommandLineOptions(static_cast<int>(std::size(arguments)), arguments);
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
        LLVMInitializeAArch64TargetInfo();
        LLVMInitializeAArch64Target();
        LLVMInitializeAArch64TargetMC();
        LLVMInitializeAArch64AsmPrinter();
        return true;
    }();
    (void)is_started;
}

}  // namespace

struct CodeMaker::State {
    JITTargetMachineBuilder cpu;
    std::unique_ptr<llvm::TargetMachine> target;
    VectorTarget vectors;

    // `choose` picks a CPU of that level.
    State(runtime::Isa isa, JITTargetMachineBuilder (*choose)(runtime::Isa))
        : cpu((start_llvm(), choose(isa))), vectors(vectors_of(isa)) {
        // A JIT's default is the large code model, which loads a 64-bit address into registers for
        // every constant.
        cpu.setCodeModel(llvm::CodeModel::Small);
        cpu.setRelocationModel(llvm::Reloc::PIC_);
        cpu.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
        cpu.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
        target = must(cpu.createTargetMachine(), "making a code generator for this CPU");
    }
};

CodeMaker::CodeMaker(std::unique_ptr<State> state) : state_(std::move(state)) {}
CodeMaker::CodeMaker(runtime::Isa isa) : CodeMaker(std::make_unique<State>(isa, plain_cpu)) {}
CodeMaker::~CodeMaker() = default;
const VectorTarget& CodeMaker::vectors() const { return state_->vectors; }
std::string CodeMaker::version() const {
    return cat("LLVM ", LLVM_VERSION_STRING, " ", state_->cpu.getCPU(), " ",
               std::hash<std::string>()(state_->cpu.getFeatures().getString()));
}

void CodeMaker::optimize(llvm::Module& module) {
    llvm::TargetMachine& target = *state_->target;
    module.setDataLayout(target.createDataLayout());
    module.setTargetTriple(target.getTargetTriple());
    for (llvm::Function& function : module) {
        if (function.isDeclaration()) continue;
        function.addFnAttr("target-cpu", target.getTargetCPU());
        function.addFnAttr("target-features", target.getTargetFeatureString());
        function.addFnAttr("prefer-vector-width", std::to_string(32 * state_->vectors.native));
        function.addFnAttr("no-trapping-math", "true");
        function.setDoesNotThrow();
    }
    // The code has vectors already, and uniform values are computed before the loops: only
    // peepholes are left.
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
    llvm::FunctionPassManager passes;
    passes.addPass(llvm::EarlyCSEPass());
    passes.addPass(llvm::InstCombinePass());
    for (llvm::Function& function : module)
        if (!function.isDeclaration()) passes.run(function, functions);
}

std::string CodeMaker::to_object(llvm::Module& module) {
    llvm::SmallVector<char, 0> object;
    llvm::raw_svector_ostream out(object);
    llvm::legacy::PassManager passes;
    llvm::MCContext* context = nullptr;
    if (state_->target->addPassesToEmitMC(passes, context, out, /*DisableVerify=*/true))
        throw DeviceError("LLVM: this CPU has no code generator for object files");
    passes.run(module);
    return {object.data(), object.size()};
}

std::string CodeMaker::to_assembly(llvm::Module& module) {
    llvm::SmallVector<char, 0> text;
    llvm::raw_svector_ostream out(text);
    llvm::legacy::PassManager passes;
    if (state_->target->addPassesToEmitFile(
            passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile, /*DisableVerify=*/true))
        throw DeviceError("LLVM: this CPU has no printer of assembly");
    passes.run(module);
    return {text.data(), text.size()};
}

struct Machine::Linker {
    std::unique_ptr<llvm::orc::LLJIT> jit;
    int serial = 0;

    explicit Linker(JITTargetMachineBuilder cpu)
        : jit(must(llvm::orc::LLJITBuilder()
                       .setJITTargetMachineBuilder(std::move(cpu))
                       .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                       .setLinkProcessSymbolsByDefault(false)
                       .create(),
                   "starting the linker")) {
        llvm::orc::SymbolMap symbols;
        for (const auto& [name, address] : codegen::callable_functions())
            symbols[jit->mangleAndIntern(name)] = {
                llvm::orc::ExecutorAddr::fromPtr(address),
                llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
        must(jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))),
             "defining functions");
    }
};

Machine::Machine(runtime::Isa isa)
    : CodeMaker(std::make_unique<State>(std::min(isa, runtime::machine_isa()), this_cpu)),
      linker_(std::make_unique<Linker>(state_->cpu)) {}
Machine::~Machine() = default;

void* Machine::load(const std::string& object) {
    llvm::orc::LLJIT& jit = *linker_->jit;
    const std::string name = cat("kernel", linker_->serial++);
    // Each kernel has a library of its own, for all kernels have the same symbol.
    llvm::orc::JITDylib& library = must(jit.createJITDylib(name), "making room for a kernel");
    library.addToLinkOrder(jit.getMainJITDylib());
    must(jit.addObjectFile(library, llvm::MemoryBuffer::getMemBufferCopy(object, name)),
         "reading object code");
    return must(jit.lookup(library, kKernelSymbol), "linking a kernel").toPtr<void*>();
}

}  // namespace megjit::mlir_backend
