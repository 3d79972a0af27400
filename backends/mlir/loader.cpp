#include "backends/mlir/loader.h"

#include "backends/mlir/abi.h"
#include "runtime/host/error.h"

namespace megjit::mlir_backend {

using runtime::cat;
using runtime::DeviceError;

namespace {

void keep(void* to, const char* data, size_t bytes) {
    static_cast<std::string*>(to)->assign(data, bytes);
}

}  // namespace

MlirCompiler::MlirCompiler(std::filesystem::path plugin)
    : PluginCompiler("MLIR", std::move(plugin), "megjit_mlir", kMegjitMlirAbi) {}

codegen::KernelFn MlirCompiler::load(const std::string& object) {
    std::string why;
    const auto load = reinterpret_cast<decltype(&megjit_mlir_load)>(function("_load"));
    void* address = load(object.data(), object.size(), keep, &why);
    if (!address) throw DeviceError(cat("MLIR: cannot load a kernel: ", why));
    return reinterpret_cast<codegen::KernelFn>(address);
}

std::string MlirCompiler::object_for(const codegen::KernelIR& kernel, runtime::Isa isa) {
    const auto answer = reinterpret_cast<decltype(&megjit_mlir_object)>(function("_object"));
    const std::string text = print(legalize(kernel, codegen::native_ops(isa)));
    return answered(text, [&](megjit_mlir_sink sink, void* to) {
        return answer(text.data(), text.size(), static_cast<int>(isa), sink, to);
    });
}

std::string MlirCompiler::ask_for_gpu(std::string_view suffix, const codegen::KernelIR& kernel,
                                      const codegen::GpuPlan& plan, int arch) const {
    const auto answer = reinterpret_cast<decltype(&megjit_mlir_gpu_compile)>(function(suffix));
    const megjit_mlir_gpu gpu{
        static_cast<int32_t>(plan.cover), plan.vector,       plan.threads, plan.team, plan.tile,
        plan.rows_lie_along_sum,          plan.tensor_cores, plan.joins,   arch};
    const std::string text = print(kernel);
    return answered(text, [&](megjit_mlir_sink sink, void* to) {
        return answer(text.data(), text.size(), &gpu, sink, to);
    });
}

std::string MlirCompiler::compile_for_gpu(const codegen::KernelIR& kernel,
                                          const codegen::GpuPlan& plan, int arch) const {
    return ask_for_gpu("_gpu_compile", kernel, plan, arch);
}

std::string MlirCompiler::source_for_gpu(const codegen::KernelIR& kernel,
                                         const codegen::GpuPlan& plan, int arch) const {
    return ask_for_gpu("_gpu_source", kernel, plan, arch);
}

}  // namespace megjit::mlir_backend
