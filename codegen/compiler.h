// codegen/compiler.h -- KernelCompiler: what a code-generating backend implements, and KernelService,
// which owns compilers, the cache in memory and on disk, and what is reported to users.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

class KernelCompiler {
public:
    virtual ~KernelCompiler() = default;
    virtual std::string_view name() const = 0;      // "MLIR"
    virtual std::string version_key() const = 0;    // compiler version, target CPU and features
    // KernelIR to relocatable object code that defines `megjit_kernel`. Throws Error on failure.
    virtual std::string compile(const KernelIR& kernel) = 0;
    // Object code to a callable; the code stays loaded until the process ends.
    virtual KernelFn load(const std::string& object) = 0;
    // Readable code for fn.kernels(): the last stage before machine code.
    virtual std::string source(const KernelIR& kernel) = 0;
};

struct CompiledKernel {
    KernelFn fn = nullptr;
    KernelIR kernel;
    std::string backend;
    double compile_ms = 0;
    bool cached = false;  // came from memory or disk
    std::function<std::string()> source;
};

// Finds (or compiles) kernels. Thread-safe. One process has one service.
class KernelService {
public:
    static KernelService& instance();
    void add(std::unique_ptr<KernelCompiler> compiler);
    std::vector<std::string_view> backends() const;
    // `backend` "" means: MGB_JIT_BACKEND, or the default of the device at hand (MLIR on a CPU).
    // Unknown values are a UserError that lists the valid ones; a value that cannot serve the CPU
    // warns once and uses the default.
    std::shared_ptr<const CompiledKernel> get(const KernelIR& kernel, std::string_view backend = "");
    bool can_compile();  // is there any compiler for this machine?

private:
    KernelCompiler& choose(std::string_view backend);
    std::mutex mutex_;
    std::vector<std::unique_ptr<KernelCompiler>> compilers_;
    std::unordered_map<std::string, std::shared_ptr<const CompiledKernel>> kernels_;
};

}  // namespace megjit::codegen
