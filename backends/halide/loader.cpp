#include "backends/halide/loader.h"

#include "backends/halide/abi.h"
#include "codegen/object_loader.h"

namespace megjit::halide_backend {

namespace fs = std::filesystem;

HalideCompiler::HalideCompiler() : HalideCompiler(codegen::plugin_path("libmegjit_halide.so")) {}
HalideCompiler::HalideCompiler(fs::path plugin)
    : PluginCompiler("HALIDE", plugin, "megjit_halide", kMegjitHalideAbi), folder_(plugin.parent_path()) {}

// Where the plug-in looks for it: beside our package, or where it lay when we were built.
bool HalideCompiler::available() const {
#ifdef __x86_64__
    std::error_code ignored;
    return PluginCompiler::available() && (fs::exists(folder_ / "../halide/lib64/libHalide.so", ignored) || fs::exists(MEGJIT_LIBHALIDE, ignored));
#else
    return false;
#endif
}

// Halide links nothing but for a JIT of its own, whose code no file can keep.
codegen::KernelFn HalideCompiler::load(const std::string& object) {
    return codegen::load_object(object);
}

}  // namespace megjit::halide_backend
