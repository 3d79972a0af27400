#include "backends/halide/loader.h"

#include "backends/halide/abi.h"
#include "codegen/object_loader.h"

namespace megjit::halide_backend {

namespace fs = std::filesystem;

HalideCompiler::HalideCompiler(fs::path plugin, fs::path library)
    : PluginCompiler("HALIDE", std::move(plugin), "megjit_halide", kMegjitHalideAbi, library),
      library_(std::move(library)) {}

std::string HalideCompiler::missing() const {
#ifdef __x86_64__
    std::error_code ignored;
    if (std::string plugin = PluginCompiler::missing(); !plugin.empty()) return plugin;
    return library_.empty() || fs::exists(library_, ignored)
               ? ""
               : "it needs libHalide: pip install 'megjit[halide]'";
#else
    return "it serves x86-64 only";
#endif
}

// Halide links only code of a JIT of its own, which cannot be kept in a file.
codegen::KernelFn HalideCompiler::load(const std::string& object) {
    return codegen::load_object(object);
}

}  // namespace megjit::halide_backend
