// codegen/compiler.h -- KernelCompiler: what a code-generating backend implements, and KernelService,
// which owns compilers, the cache in memory and on disk, and what is reported to users.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

class DiskCache;

// UserError that lists the valid names when `backend` is none of NVRTC, HALIDE and MLIR.
void refuse_unknown_backend(std::string_view backend);

// For the host; its counterpart for GPUs is in gpu_image.h.
class KernelCompiler {
public:
    virtual ~KernelCompiler() = default;
    virtual std::string_view name() const = 0;      // "MLIR"
    virtual bool available() const { return true; } // false: its plug-in is not installed, so it is passed over
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
    double compile_ms = 0;  // of the request that made it: compiling, or reading from disk, and loading
    bool cached = false;    // came from memory or disk
    std::function<std::string()> source;
};

struct KernelCounters {
    int64_t memory_hits = 0;
    int64_t disk_hits = 0;
    int64_t compiled = 0;
    double compile_ms = 0;  // all together
};

// Finds (or compiles) kernels. Thread-safe. One process has one service.
class KernelService {
public:
    static constexpr size_t kMaxKernels = 4096;  // in memory; the least recently used is forgotten first

    KernelService();
    ~KernelService();
    static KernelService& instance();
    void add(std::unique_ptr<KernelCompiler> compiler);
    std::vector<std::string_view> backends() const;
    // `backend` "" means: MGB_JIT_BACKEND, or the default of the device at hand (MLIR on a CPU).
    // Unknown values are a UserError that lists the valid ones; a value that cannot serve the CPU
    // warns once and uses the default.
    std::shared_ptr<const CompiledKernel> get(const KernelIR& kernel, std::string_view backend = "");
    bool can_compile() const;  // is there any compiler for this machine?
    KernelCounters counters() const;

private:
    using Entry = std::pair<std::string, std::shared_ptr<const CompiledKernel>>;

    KernelCompiler& choose(std::string_view backend) const;
    std::shared_ptr<const CompiledKernel> find(const std::string& key);
    void keep(const std::string& key, std::shared_ptr<const CompiledKernel> kernel);
    std::shared_ptr<CompiledKernel> make(KernelCompiler& compiler, const KernelIR& kernel, bool& from_disk);

    mutable std::mutex mutex_;   // guards the fields below
    std::mutex compile_mutex_;   // one kernel is compiled at a time, so that no work is done twice
    std::vector<std::unique_ptr<KernelCompiler>> compilers_;
    std::list<Entry> recent_;    // most recently used first
    std::unordered_map<std::string_view, std::list<Entry>::iterator> kernels_;  // keys lie in recent_
    std::unique_ptr<DiskCache> disk_;  // made at the first compile; guarded by compile_mutex_
    KernelCounters counters_;
};

}  // namespace megjit::codegen
