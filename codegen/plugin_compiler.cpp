#include "codegen/plugin_compiler.h"

#include <dlfcn.h>

#include "codegen/build_id.h"
#include "codegen/legalize.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/isa.h"

namespace megjit::codegen {

namespace fs = std::filesystem;
using runtime::cat;
using runtime::DeviceError;

namespace {

void append(void* to, const char* data, size_t bytes) {
    static_cast<std::string*>(to)->append(data, bytes);
}

}  // namespace

struct PluginCompiler::Library {
    void* handle = nullptr;
    Answer compile = nullptr, source = nullptr;
    Answer assembly = nullptr;  // not every compiler has it
    std::string version;
};

PluginCompiler::PluginCompiler(std::string name, fs::path file, std::string prefix, int abi,
                               fs::path needs)
    : name_(std::move(name)),
      file_(std::move(file)),
      prefix_(std::move(prefix)),
      abi_(abi),
      needs_(std::move(needs)) {}
PluginCompiler::~PluginCompiler() = default;

std::string PluginCompiler::missing() const {
    if (const std::lock_guard lock(mutex_); library_) return "";
    std::error_code ignored;
    return fs::is_regular_file(file_, ignored)
               ? ""
               : cat("its plug-in ", file_.filename().string(), " is not installed");
}

const PluginCompiler::Library& PluginCompiler::library() const {
    const std::lock_guard lock(mutex_);
    if (library_) return *library_;
    auto opened = std::make_unique<Library>();
    // The plug-in is never closed: kernels that it made may run until the process ends. The loader
    // finds an open library by its name, wherever the plug-in would look for it.
    const bool has_needs = needs_.empty() || dlopen(needs_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (has_needs) opened->handle = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened->handle) throw DeviceError(cat(name_, ": cannot open its plug-in: ", dlerror()));
    const auto symbol = [&]<class Fn>(const char* suffix, Fn& fn) {
        fn = reinterpret_cast<Fn>(dlsym(opened->handle, (prefix_ + suffix).c_str()));
        if (!fn)
            throw DeviceError(cat(name_, ": ", file_.string(), " lacks ", prefix_, suffix,
                                  "; install megjit again"));
    };
    int (*abi)() = nullptr;
    void (*version)(PluginSink, void*) = nullptr;
    symbol("_abi", abi);
    if (abi() != abi_)
        throw DeviceError(cat(name_, ": ", file_.string(), " is of another version of megjit"));
    void (*bound)(int) = nullptr;
    symbol("_bound", bound);
    bound(static_cast<int>(runtime::isa()));
    symbol("_version", version);
    symbol("_compile", opened->compile);
    symbol("_source", opened->source);
    opened->assembly =
        reinterpret_cast<Answer>(dlsym(opened->handle, (prefix_ + "_assembly").c_str()));
    version(append, &opened->version);
    // A plug-in built from other sources may emit other code.
    opened->version += cat(" build ", build_id(file_));
    library_ = std::move(opened);
    return *library_;
}

void* PluginCompiler::function(std::string_view suffix) const {
    const std::string symbol = cat(prefix_, suffix);
    if (void* address = dlsym(library().handle, symbol.c_str())) return address;
    throw DeviceError(
        cat(name_, ": ", file_.string(), " lacks ", symbol, "; install megjit again"));
}

std::string PluginCompiler::version_key() const { return library().version; }

std::string PluginCompiler::answered(const std::string& kernel,
                                     const std::function<int(PluginSink, void*)>& answer) const {
    std::string result;
    if (answer(append, &result) != 0)
        throw DeviceError(cat(name_, ": cannot compile a kernel: ", result, "\n", kernel));
    return result;
}

std::string PluginCompiler::ask(Answer answer, const KernelIR& kernel) const {
    const std::string text = print(legalize(kernel, native()));
    return answered(text, [&](PluginSink sink, void* to) {
        return answer(text.data(), text.size(), sink, to);
    });
}

std::string PluginCompiler::compile(const KernelIR& kernel) {
    return ask(library().compile, kernel);
}
std::string PluginCompiler::source(const KernelIR& kernel) { return ask(library().source, kernel); }
std::string PluginCompiler::assembly(const KernelIR& kernel) {
    return library().assembly ? ask(library().assembly, kernel) : "";
}

}  // namespace megjit::codegen
