#include "backends/mlir/loader.h"

#include <dlfcn.h>

#include "backends/mlir/abi.h"
#include "codegen/build_id.h"
#include "codegen/expand_math.h"
#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::mlir_backend {
namespace {

namespace fs = std::filesystem;
using runtime::cat;
using runtime::DeviceError;

fs::path find_plugin() {
    fs::path folder = runtime::debug().plugin_dir;
    if (folder.empty()) {
        Dl_info self{};
        static const char anchor = 0;
        if (dladdr(&anchor, &self) && self.dli_fname) folder = fs::path(self.dli_fname).parent_path();
    }
    return folder / "libmegjit_mlir.so";
}

void append(void* to, const char* data, size_t bytes) { static_cast<std::string*>(to)->append(data, bytes); }

}  // namespace

struct MlirCompiler::Plugin {
    decltype(&megjit_mlir_compile) compile = nullptr;
    decltype(&megjit_mlir_source) source = nullptr;
    decltype(&megjit_mlir_load) load = nullptr;
    std::string version;
};

MlirCompiler::MlirCompiler() : MlirCompiler(find_plugin()) {}
MlirCompiler::MlirCompiler(fs::path plugin) : path_(std::move(plugin)) {}
MlirCompiler::~MlirCompiler() = default;

bool MlirCompiler::available() const {
    std::error_code ignored;
    return fs::is_regular_file(path_, ignored);
}

const MlirCompiler::Plugin& MlirCompiler::plugin() const {
    const std::lock_guard lock(mutex_);
    if (plugin_) return *plugin_;
    // Never closed: kernels that it made may run until the process ends.
    void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw DeviceError(cat("MLIR: cannot open its plug-in: ", dlerror()));
    auto opened = std::make_unique<Plugin>();
    const auto symbol = [&]<class Fn>(const char* name, Fn& fn) {
        fn = reinterpret_cast<Fn>(dlsym(library, name));
        if (!fn) throw DeviceError(cat("MLIR: ", path_.string(), " lacks ", name, "; install megjit again"));
    };
    decltype(&megjit_mlir_abi) abi = nullptr;
    decltype(&megjit_mlir_version) version = nullptr;
    symbol("megjit_mlir_abi", abi);
    if (abi() != kMegjitMlirAbi) throw DeviceError(cat("MLIR: ", path_.string(), " is of another version of megjit"));
    symbol("megjit_mlir_version", version);
    symbol("megjit_mlir_compile", opened->compile);
    symbol("megjit_mlir_source", opened->source);
    symbol("megjit_mlir_load", opened->load);
    version(append, &opened->version);
    // A plug-in that was built from other sources may emit other code.
    opened->version += cat(" build ", codegen::build_id(path_));
    plugin_ = std::move(opened);
    return *plugin_;
}

std::string MlirCompiler::version_key() const { return plugin().version; }

std::string MlirCompiler::compile(const codegen::KernelIR& kernel) {
    const std::string text = print(codegen::expand_math(kernel));
    std::string result;
    if (plugin().compile(text.data(), text.size(), append, &result) != 0)
        throw DeviceError(cat("MLIR: cannot compile a kernel: ", result, "\n", text));
    return result;
}

std::string MlirCompiler::source(const codegen::KernelIR& kernel) {
    const std::string text = print(codegen::expand_math(kernel));
    std::string result;
    if (plugin().source(text.data(), text.size(), append, &result) != 0)
        throw DeviceError(cat("MLIR: cannot compile a kernel: ", result, "\n", text));
    return result;
}

codegen::KernelFn MlirCompiler::load(const std::string& object) {
    std::string why;
    void* address = plugin().load(object.data(), object.size(), append, &why);
    if (!address) throw DeviceError(cat("MLIR: cannot load a kernel: ", why));
    return reinterpret_cast<codegen::KernelFn>(address);
}

}  // namespace megjit::mlir_backend
