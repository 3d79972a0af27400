#include "backends/mlir/loader.h"

#include "backends/mlir/abi.h"
#include "runtime/error.h"

namespace megjit::mlir_backend {

MlirCompiler::MlirCompiler() : MlirCompiler(codegen::plugin_path("libmegjit_mlir.so")) {}
MlirCompiler::MlirCompiler(std::filesystem::path plugin) : PluginCompiler("MLIR", std::move(plugin), "megjit_mlir", kMegjitMlirAbi) {}

codegen::KernelFn MlirCompiler::load(const std::string& object) {
    std::string why;
    const auto keep = [](void* to, const char* data, size_t bytes) { static_cast<std::string*>(to)->assign(data, bytes); };
    const auto load = reinterpret_cast<decltype(&megjit_mlir_load)>(function("_load"));
    void* address = load(object.data(), object.size(), keep, &why);
    if (!address) throw runtime::DeviceError(runtime::cat("MLIR: cannot load a kernel: ", why));
    return reinterpret_cast<codegen::KernelFn>(address);
}

}  // namespace megjit::mlir_backend
