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
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "runtime/host/error.h"

namespace megjit::mlir_backend {
namespace {

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

#if defined(__aarch64__)
// A plain CPU of that level: LLVM finds out the model by /proc/cpuinfo, which an emulator does not
// replace.
llvm::orc::JITTargetMachineBuilder target_of(runtime::Isa isa) {
    llvm::orc::JITTargetMachineBuilder host{llvm::Triple(llvm::sys::getProcessTriple())};
    host.setCPU("generic");
    if (isa >= runtime::Isa::dotprod) host.addFeatures({"+lse", "+fullfp16", "+dotprod"});
    if (isa >= runtime::Isa::i8mm) host.addFeatures({"+i8mm"});
    if (isa >= runtime::Isa::bf16) host.addFeatures({"+bf16"});
    return host;
}
VectorTarget vectors_of(runtime::Isa) { return {.native = 4}; }
#else
// The CPU of this machine, or below its level the plain x86-64 of that level.
llvm::orc::JITTargetMachineBuilder target_of(runtime::Isa isa) {
    auto host = must(llvm::orc::JITTargetMachineBuilder::detectHost(), "looking at this CPU");
    if (isa < runtime::machine_isa()) {
        host.setCPU(runtime::has_avx512(isa) ? "x86-64-v4" : "x86-64-v3");
        host.getFeatures() = llvm::SubtargetFeatures();
    }
    return host;
}
VectorTarget vectors_of(runtime::Isa isa) {
    return {.native = runtime::has_avx512(isa) ? 16 : 8, .truncates = true};
}
#endif

}  // namespace

struct Machine::State {
    std::unique_ptr<llvm::orc::LLJIT> jit;
    std::unique_ptr<llvm::TargetMachine> target;
    VectorTarget vectors;
    std::string version;
    int serial = 0;

    explicit State(runtime::Isa isa) {
        set_options();
        llvm::InitializeNativeTarget();
        llvm::InitializeNativeTargetAsmPrinter();
        auto host = target_of(isa);
        // A JIT's default is the large code model, which loads a 64-bit address into registers for
        // every constant.
        host.setCodeModel(llvm::CodeModel::Small);
        host.setRelocationModel(llvm::Reloc::PIC_);
        host.setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
        host.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
        target = must(host.createTargetMachine(), "making a code generator for this CPU");
        vectors = vectors_of(isa);
        version = cat("LLVM ", LLVM_VERSION_STRING, " ", host.getCPU(), " ",
                      std::hash<std::string>()(host.getFeatures().getString()));
        jit = must(llvm::orc::LLJITBuilder()
                       .setJITTargetMachineBuilder(std::move(host))
                       .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                       .setLinkProcessSymbolsByDefault(false)
                       .create(),
                   "starting the linker");
        define_functions();
    }

    // Turns off passes that gain nothing here but take a quarter of the compile time: addresses are
    // sums of a base and an index already, and the loops have their instructions in the order that
    // keeps a CPU busy (loops::spread_chains).
    static void set_options() {
        const char* const arguments[] = {"megjit", "-disable-lsr", "-disable-post-ra",
                                         "-enable-misched=false", "-pre-RA-sched=source"};
        llvm::cl::ParseCommandLineOptions(static_cast<int>(std::size(arguments)), arguments);
    }

    void define_functions() {
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
    : state_(std::make_unique<State>(std::min(isa, runtime::machine_isa()))) {}
Machine::~Machine() = default;
const VectorTarget& Machine::vectors() const { return state_->vectors; }
std::string Machine::version() const { return state_->version; }

void Machine::optimize(llvm::Module& module) {
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

std::string Machine::to_object(llvm::Module& module) {
    llvm::SmallVector<char, 0> object;
    llvm::raw_svector_ostream out(object);
    llvm::legacy::PassManager passes;
    llvm::MCContext* context = nullptr;
    if (state_->target->addPassesToEmitMC(passes, context, out, /*DisableVerify=*/true))
        throw DeviceError("LLVM: this CPU has no code generator for object files");
    passes.run(module);
    return {object.data(), object.size()};
}

std::string Machine::to_assembly(llvm::Module& module) {
    llvm::SmallVector<char, 0> text;
    llvm::raw_svector_ostream out(text);
    llvm::legacy::PassManager passes;
    if (state_->target->addPassesToEmitFile(
            passes, out, nullptr, llvm::CodeGenFileType::AssemblyFile, /*DisableVerify=*/true))
        throw DeviceError("LLVM: this CPU has no printer of assembly");
    passes.run(module);
    return {text.data(), text.size()};
}

void* Machine::load(const std::string& object) {
    llvm::orc::LLJIT& jit = *state_->jit;
    const std::string name = cat("kernel", state_->serial++);
    // Each kernel has a library of its own, for all kernels have the same symbol.
    llvm::orc::JITDylib& library = must(jit.createJITDylib(name), "making room for a kernel");
    library.addToLinkOrder(jit.getMainJITDylib());
    must(jit.addObjectFile(library, llvm::MemoryBuffer::getMemBufferCopy(object, name)),
         "reading object code");
    return must(jit.lookup(library, kKernelSymbol), "linking a kernel").toPtr<void*>();
}

}  // namespace megjit::mlir_backend
