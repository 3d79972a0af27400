// backends/mlir/ -- kernels as machine code of this CPU, by MLIR and LLVM.
// In: the text of a KernelIR. Out: object code, and its address once loaded.
// LLVM lives in a plug-in that is opened at the first compile; this loader is all that others see.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>

#include "codegen/compiler.h"

namespace megjit::mlir_backend {

class MlirCompiler final : public codegen::KernelCompiler {
public:
    // Looks in MEGJIT_PLUGIN_DIR when that is set, else beside the library that holds this code.
    MlirCompiler();
    explicit MlirCompiler(std::filesystem::path plugin);
    ~MlirCompiler() override;

    std::string_view name() const override { return "MLIR"; }
    bool available() const override;
    std::string version_key() const override;
    std::string compile(const codegen::KernelIR& kernel) override;
    codegen::KernelFn load(const std::string& object) override;
    std::string source(const codegen::KernelIR& kernel) override;

private:
    struct Plugin;
    const Plugin& plugin() const;  // opens it at the first use; DeviceError when that fails

    std::filesystem::path path_;
    mutable std::mutex mutex_;
    mutable std::unique_ptr<Plugin> plugin_;
};

}  // namespace megjit::mlir_backend
