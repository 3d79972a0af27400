// The C ABI of libmegjit_mlir.so. One mutex guards everything: LLVM's contexts are not shared.
#include <atomic>
#include <exception>
#include <mutex>

#include "backends/mlir/abi.h"
#include "backends/mlir/emit_scalar.h"
#include "backends/mlir/gpu_lower.h"
#include "backends/mlir/gpu_machine.h"
#include "backends/mlir/lower.h"
#include "backends/mlir/machine.h"
#include "codegen/legalize.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"
#include "runtime/host/error.h"

namespace megjit::mlir_backend { namespace {

codegen::KernelIR sound_kernel(std::string_view text, codegen::NativeOps native) {
    const codegen::KernelIR kernel = codegen::parse_kernel(text);
    if (const std::string fault = fault_of(kernel); !fault.empty())
        throw runtime::InternalError("unsound kernel: " + fault);
    if (const std::string what = illegal_in(kernel, native); !what.empty())
        throw runtime::InternalError("not legal: " + what);
    return kernel;
}

std::atomic<int> bound{static_cast<int>(runtime::kHighest)};

struct Compiler {
    Lowering lowering;
    Machine machine{static_cast<runtime::Isa>(bound.load())};
    std::mutex mutex;

    // Never destroyed: code that it has loaded may run while the process exits.
    static Compiler& instance() {
        static Compiler* compiler = new Compiler;
        return *compiler;
    }

    std::unique_ptr<llvm::Module> optimized(std::string_view text, llvm::LLVMContext& context) {
        return optimized_for(machine, runtime::machine_isa(), text, context);
    }

    // The object code of a kernel for a plain CPU of that level.
    std::string object_for(runtime::Isa isa, std::string_view text) {
        llvm::LLVMContext context;
        if (!other_maker || other_isa != isa) other_maker = std::make_unique<CodeMaker>(isa);
        other_isa = isa;
        return other_maker->to_object(*optimized_for(*other_maker, isa, text, context));
    }

private:
    std::unique_ptr<CodeMaker> other_maker;  // for other_isa, the last that was asked for
    runtime::Isa other_isa{};

    std::unique_ptr<llvm::Module> optimized_for(CodeMaker& maker, runtime::Isa isa,
                                                std::string_view text, llvm::LLVMContext& context) {
        const codegen::KernelIR kernel = sound_kernel(text, codegen::native_ops(isa));
        std::unique_ptr<llvm::Module> module = lowering.lower(kernel, maker.vectors(), context);
        maker.optimize(*module);
        return module;
    }
};

// The part for GPUs: none of it is made where there are none.
struct GpuPart {
    GpuLowering lowering;
    std::mutex mutex;

    static GpuPart& instance() {
        static GpuPart* part = new GpuPart;
        return *part;
    }

    // Lowers a kernel, and returns what `finish` makes of its module.
    template <class Finish>
    std::string run(std::string_view text, const megjit_mlir_gpu& gpu, const Finish& finish) {
        const codegen::KernelIR kernel = sound_kernel(text, {});
        const codegen::GpuPlan plan{.cover = static_cast<codegen::Cover>(gpu.cover),
                                    .vector = gpu.vector,
                                    .threads = gpu.threads,
                                    .team = gpu.team,
                                    .tile = gpu.tile,
                                    .rows_lie_along_sum = gpu.rows_lie_along_sum != 0,
                                    .tensor_cores = gpu.tensor_cores != 0,
                                    .joins = gpu.joins != 0};
        const std::lock_guard lock(mutex);
        llvm::LLVMContext context;
        return finish(*lowering.lower(kernel, plan, context));
    }
};

std::string text_of(const llvm::Module& module) {
    std::string text;
    llvm::raw_string_ostream out(text);
    module.print(out, nullptr);
    return text;
}

// Runs `make` and hands its text to the sink; an exception becomes its message and status 1.
template <class Make>
int answer(megjit_mlir_sink sink, void* to, const Make& make) noexcept {
    try {
        const std::string result = make();
        sink(to, result.data(), result.size());
        return 0;
    } catch (const std::exception& error) {
        const std::string_view why = error.what();
        sink(to, why.data(), why.size());
        return 1;
    }
}

}}  // namespace megjit::mlir_backend

#define MEGJIT_EXPORT __attribute__((visibility("default")))
using megjit::mlir_backend::answer;
using megjit::mlir_backend::Compiler;
using megjit::mlir_backend::GpuPart;
using megjit::mlir_backend::text_of;

extern "C" {

MEGJIT_EXPORT int megjit_mlir_abi(void) { return kMegjitMlirAbi; }

MEGJIT_EXPORT void megjit_mlir_bound(int isa) { megjit::mlir_backend::bound = isa; }

MEGJIT_EXPORT void megjit_mlir_version(megjit_mlir_sink sink, void* to) {
    answer(sink, to, [] { return Compiler::instance().machine.version(); });
}

MEGJIT_EXPORT int megjit_mlir_compile(const char* kernel, size_t bytes, megjit_mlir_sink sink,
                                      void* to) {
    return answer(sink, to, [&] {
        Compiler& compiler = Compiler::instance();
        const std::lock_guard lock(compiler.mutex);
        llvm::LLVMContext context;
        return compiler.machine.to_object(*compiler.optimized({kernel, bytes}, context));
    });
}

MEGJIT_EXPORT int megjit_mlir_source(const char* kernel, size_t bytes, megjit_mlir_sink sink,
                                     void* to) {
    return answer(sink, to, [&] {
        Compiler& compiler = Compiler::instance();
        const std::lock_guard lock(compiler.mutex);
        llvm::LLVMContext context;
        return text_of(*compiler.optimized({kernel, bytes}, context));
    });
}

MEGJIT_EXPORT int megjit_mlir_assembly(const char* kernel, size_t bytes, megjit_mlir_sink sink,
                                       void* to) {
    return answer(sink, to, [&] {
        Compiler& compiler = Compiler::instance();
        const std::lock_guard lock(compiler.mutex);
        llvm::LLVMContext context;
        return compiler.machine.to_assembly(*compiler.optimized({kernel, bytes}, context));
    });
}

MEGJIT_EXPORT int megjit_mlir_object(const char* kernel, size_t bytes, int isa,
                                     megjit_mlir_sink sink, void* to) {
    return answer(sink, to, [&] {
        Compiler& compiler = Compiler::instance();
        const std::lock_guard lock(compiler.mutex);
        return compiler.object_for(static_cast<megjit::runtime::Isa>(isa), {kernel, bytes});
    });
}

MEGJIT_EXPORT void* megjit_mlir_load(const char* object, size_t bytes, megjit_mlir_sink sink,
                                     void* to) {
    void* address = nullptr;
    std::string why;
    const auto keep = [](void* text, const char* data, size_t size) {
        static_cast<std::string*>(text)->assign(data, size);
    };
    const int failed = answer(keep, &why, [&] {
        Compiler& compiler = Compiler::instance();
        const std::lock_guard lock(compiler.mutex);
        address = compiler.machine.load({object, bytes});
        return std::string();
    });
    if (!failed) return address;
    sink(to, why.data(), why.size());
    return nullptr;
}

MEGJIT_EXPORT int megjit_mlir_gpu_compile(const char* kernel, size_t bytes,
                                          const megjit_mlir_gpu* gpu, megjit_mlir_sink sink,
                                          void* to) {
    return answer(sink, to, [&] {
        return GpuPart::instance().run({kernel, bytes}, *gpu, [&](llvm::Module& module) {
            return megjit::mlir_backend::to_ptx(module, gpu->arch);
        });
    });
}

MEGJIT_EXPORT int megjit_mlir_gpu_source(const char* kernel, size_t bytes,
                                         const megjit_mlir_gpu* gpu, megjit_mlir_sink sink,
                                         void* to) {
    return answer(sink, to, [&] {
        return GpuPart::instance().run({kernel, bytes}, *gpu, [&](llvm::Module& module) {
            megjit::mlir_backend::optimize_for_gpu(module, gpu->arch);
            return text_of(module);
        });
    });
}

}  // extern "C"
