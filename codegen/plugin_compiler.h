// codegen/plugin_compiler.h -- a KernelCompiler that lives in a shared library of its own, behind a
// C ABI: <prefix>_abi, _bound, _version, _compile, _source and perhaps _assembly, as
// backends/mlir/abi.h describes them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "codegen/compiler.h"
#include "runtime/host/mutex.h"

namespace megjit::codegen {

// Receives the whole result, or the text of an error, in one call.
using PluginSink = void (*)(void* to, const char* data, size_t bytes);

class PluginCompiler : public KernelCompiler {
public:
    // `name` is the compiler's name, "MLIR"; `prefix` begins the names of the functions,
    // "megjit_mlir"; `abi` is the value that <prefix>_abi() must return. `needs`: a library that
    // the plug-in links, wherever the plug-in finds it.
    PluginCompiler(std::string name, std::filesystem::path file, std::string prefix, int abi,
                   std::filesystem::path needs = {});
    ~PluginCompiler() override;

    std::string_view name() const override { return name_; }
    std::string missing()
        const override;  // only looks for the file, which is opened at the first use
    std::string version_key() const override;
    std::string compile(const KernelIR& kernel) override;
    std::string source(const KernelIR& kernel) override;
    std::string assembly(const KernelIR& kernel) override;

protected:
    // DeviceError when the library cannot be opened, is of another version, or lacks the function
    // `prefix` + `suffix`.
    void* function(std::string_view suffix) const;
    // Returns what `answer` hands to the sink, DeviceError with it where it does not return 0.
    std::string answered(const std::string& kernel,
                         const std::function<int(PluginSink, void*)>& answer) const;

private:
    struct Library;
    const Library& library() const;
    using Answer = int (*)(const char* kernel, size_t bytes, PluginSink sink, void* to);
    std::string ask(Answer answer, const KernelIR& kernel) const;

    std::string name_;
    std::filesystem::path file_;
    std::string prefix_;
    int abi_;
    std::filesystem::path needs_;
    mutable runtime::Mutex mutex_{"a plug-in", runtime::Rank::inner};
    mutable std::unique_ptr<Library> library_;
};

}  // namespace megjit::codegen
