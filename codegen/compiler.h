// codegen/compiler.h -- KernelCompiler and GpuCompiler: what code-generating backends implement,
// and KernelService, which owns compilers, the cache in memory and on disk, and what is reported to
// users.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codegen/compile_queue.h"
#include "codegen/gpu_image.h"
#include "codegen/legalize.h"

namespace megjit::codegen {

class DiskCache;
class ImportedKernels;
using runtime::CodeTarget;

// UserError that lists the valid names when `backend` is none of NVRTC, HALIDE and MLIR.
void refuse_unknown_backend(std::string_view backend);

// A kernel to compile, with its target.
struct KernelJob {
    KernelIR kernel;
    CodeTarget target = {};
    LaunchShape launch = {};  // for a GPU: the code may depend on its numbers
    bool is_for_gpu() const { return target.is_gpu(); }
};

// For the host a function, which stays loaded until the process ends; for a GPU an image.
struct KernelCode {
    KernelFn fn = nullptr;
    std::shared_ptr<const GpuImage> image = nullptr;
    explicit operator bool() const { return fn || image; }
};

// What the service knows of a compiler. Kernels that it passes to one are sound, and legal
// (codegen/legalize.h) except for native().
class Compiler {
public:
    virtual ~Compiler() = default;
    virtual std::string_view name() const = 0;  // "MLIR"
    virtual bool is_for_gpus() const = 0;
    // Names what must be installed before the compiler can serve, with the command where there is
    // one; "" when nothing is missing.
    virtual std::string missing() const { return ""; }
    bool available() const { return missing().empty(); }  // if not, it is passed over
    // Names, in one line, the version of the compiler and of the text that we print for it.
    virtual std::string version_key() const = 0;
    virtual NativeOps native() const { return {}; }
    // Everything that the code takes from the numbers of the launch: jobs with equal variants share
    // code. It is one line. An unavailable compiler is asked, too, to find what was imported.
    virtual std::string variant_of(const KernelJob&) const { return ""; }
    // The code in the form that the cache on disk keeps. Throws Error on failure.
    virtual std::string bytes_of(const KernelJob& job) = 0;
    virtual KernelCode code_of(const std::string& bytes) = 0;
    // Object code for a plain CPU of that level, which need not be of this machine's architecture;
    // "" where the compiler makes none.
    virtual std::string object_for(const KernelIR&, runtime::Isa) { return ""; }
    // Readable code for fn.kernels(): the last stage before machine code, and machine code (where
    // it can be shown).
    virtual std::string source_of(const KernelJob& job) = 0;
    virtual std::string assembly_of(const KernelJob&) { return ""; }
};

// A compiler for the host.
class KernelCompiler : public Compiler {
public:
    // Compiles KernelIR to relocatable object code that defines `megjit_kernel`.
    virtual std::string compile(const KernelIR& kernel) = 0;
    // Turns object code into a callable; the code stays loaded until the process ends.
    virtual KernelFn load(const std::string& object) = 0;
    virtual std::string source(const KernelIR& kernel) = 0;
    virtual std::string assembly(const KernelIR&) { return ""; }

    bool is_for_gpus() const final { return false; }
    std::string bytes_of(const KernelJob& job) final { return compile(job.kernel); }
    KernelCode code_of(const std::string& bytes) final { return {.fn = load(bytes)}; }
    std::string source_of(const KernelJob& job) final { return source(job.kernel); }
    std::string assembly_of(const KernelJob& job) final { return assembly(job.kernel); }
};

// A compiler for GPUs. Thread-safe.
class GpuCompiler : public Compiler {
public:
    // "" when one image serves all launches; the extents and strides when the image is made for
    // this launch.
    virtual std::string variant(const KernelIR& kernel, const LaunchShape& launch,
                                CodeTarget target) const = 0;
    virtual GpuImage compile(const KernelIR& kernel, const LaunchShape& launch,
                             CodeTarget target) = 0;
    virtual std::string source(const KernelIR& kernel, const LaunchShape& launch,
                               CodeTarget target) = 0;
    // Can it compile CUDA C++ that we wrote by hand?
    virtual bool compiles_cuda() const { return false; }
    virtual std::string compile_cuda(const std::string& text, CodeTarget target) {
        (void)text, (void)target;
        return {};
    }

    bool is_for_gpus() const final { return true; }
    std::string variant_of(const KernelJob& job) const final {
        return variant(job.kernel, job.launch, job.target);
    }
    std::string bytes_of(const KernelJob& job) final {
        return to_bytes(compile(job.kernel, job.launch, job.target));
    }
    KernelCode code_of(const std::string& bytes) final;
    std::string source_of(const KernelJob& job) final {
        return source(job.kernel, job.launch, job.target);
    }
};

struct CompiledKernel {
    KernelFn fn = nullptr;  // for the host
    std::shared_ptr<const GpuImage> image = nullptr;  // for a GPU
    KernelIR kernel;
    std::string backend;
    double compile_ms =
        0;  // time that the first request took: compiling, or reading from disk, and loading
    bool cached = false;  // came from memory or disk
    std::function<std::string()> source, assembly;  // each compiles again, and is slow
};

// A kernel that was asked for, and may still be compiling.
class KernelRequest {
public:
    explicit KernelRequest(KernelJob job) : job_(std::move(job)) {}
    const KernelIR& kernel() const { return job_.kernel; }
    bool is_done() const { return done_.load(std::memory_order_acquire); }
    // These are valid once it is done:
    const std::shared_ptr<const CompiledKernel>& compiled() const {
        return compiled_;
    }  // null: compilation failed
    const std::string& error() const { return error_; }

private:
    friend class KernelService;
    void succeed(std::shared_ptr<const CompiledKernel> compiled) {
        compiled_ = std::move(compiled);
        done_.store(true, std::memory_order_release);
    }
    void fail(std::string error) {
        error_ = std::move(error);
        done_.store(true, std::memory_order_release);
    }
    const KernelJob job_;
    std::shared_ptr<const CompiledKernel> compiled_;
    std::string error_;
    std::atomic<bool> done_{false};
};
using KernelRequests = std::vector<std::shared_ptr<const KernelRequest>>;

// MEGJIT_COMPILE: what a call does while kernels that it could use are not compiled yet.
enum class CompileMode : uint8_t {
    async,  // it runs without them
    sync,  // it waits for them
    off,  // no kernels are compiled
};
CompileMode compile_mode();  // UserError when the variable has none of these values

struct KernelCounters {
    int64_t memory_hits = 0;
    int64_t disk_hits = 0;
    int64_t compiled = 0;
    double compile_ms = 0;  // sum over all compilations
};

// Finds (or compiles) kernels, for the host and for GPUs. Thread-safe. One process has one service.
class KernelService {
public:
    static constexpr size_t kMaxKernels =
        4096;  // kernels in memory; the least recently used is dropped first

    KernelService();
    ~KernelService();
    static KernelService& instance();
    void add(std::unique_ptr<Compiler> compiler);
    std::vector<std::string_view> backends(bool for_gpus = false) const;  // the available ones
    // `backend` "" means: MGB_JIT_BACKEND, or the first compiler that is available (MLIR and HALIDE
    // for the host; NVRTC, MLIR and HALIDE for GPUs). An unknown name is a UserError that lists the
    // valid ones; a compiler that cannot serve is replaced with a warning. Without any compiler,
    // get() finds what was imported into the cache. Compiles in the calling thread; throws Error on
    // failure.
    std::shared_ptr<const CompiledKernel> get(const KernelJob& job, std::string_view backend = "");
    std::shared_ptr<const CompiledKernel> get(const KernelIR& kernel,
                                              std::string_view backend = "") {
        return get(KernelJob{kernel}, backend);
    }

    // Asks for a kernel beside execution: the request is done at once when the kernel is in memory
    // or on disk, or has failed before. The first failure is reported on stderr, with the path of a
    // dump. A request that nobody holds any more is not compiled. Throws UserError for an unknown
    // MGB_JIT_BACKEND.
    std::shared_ptr<const KernelRequest> request(const KernelJob& job,
                                                 std::string_view backend = "");
    // Relocatable object code for a plain CPU of that level, which defines `megjit_kernel` and
    // calls only functions of libc and libm. Throws Error, also where MLIR is missing.
    std::string object_of(const KernelIR& kernel, runtime::Isa isa);
    // Compiles CUDA C++ that was written by hand for a GPU; the result is kept on disk as kernels
    // are. Throws Error, also where NVRTC is missing.
    std::string compile_cuda(const std::string& text, CodeTarget target);
    // Returns when all are done, `until` has passed or stop() was called; Ctrl-C throws.
    void wait(const KernelRequests& requests, CompileQueue::Clock::time_point until);
    // Called before the process ends: compiles no more, and gives the running compilation some
    // time.
    void stop(std::chrono::milliseconds grace) { queue_.stop(grace); }
    bool is_stopped() const { return queue_.is_stopped(); }

    bool can_compile() const;  // is there any compiler for this machine?
    KernelCounters counters() const;

private:
    using Entry = std::pair<std::string, std::shared_ptr<const CompiledKernel>>;

    Compiler* choose(bool for_gpus, std::string_view backend) const;  // null: none is installed
    std::shared_ptr<const CompiledKernel> find(const std::string& key);
    void keep(const std::string& key, std::shared_ptr<const CompiledKernel> kernel);
    // To be called with compile_mutex_ held:
    DiskCache& disk();
    KernelCode load_from_disk(Compiler& compiler, const std::string& key);
    std::shared_ptr<const CompiledKernel> produce(Compiler& compiler, const KernelJob& job,
                                                  const std::string& key, bool from_disk_only);
    std::shared_ptr<const CompiledKernel> import(
        const KernelJob& job);  // null: the cache has none either
    void serve(Compiler& compiler, KernelRequest& request, const std::string& key);

    mutable runtime::Mutex mutex_{"the kernels in memory"};  // guards the fields below
    // One kernel is compiled at a time, so that no work is done twice; locked around every call of
    // a compiler. A fork waits for the running compilation.
    runtime::Mutex compile_mutex_{"the compiler", runtime::Rank::compiling};
    std::vector<std::unique_ptr<Compiler>> compilers_;
    std::list<Entry> recent_;  // most recently used first
    std::unordered_map<std::string_view, std::list<Entry>::iterator>
        kernels_;  // keys point into recent_
    std::unique_ptr<DiskCache>
        disk_;  // made at the first compilation; compile_mutex_ guards it and the next member
    std::unique_ptr<ImportedKernels> imported_;  // made when there is no compiler
    KernelCounters counters_;
    std::unordered_map<std::string, std::weak_ptr<KernelRequest>>
        wanted_;  // requests that wait or run
    std::unordered_map<std::string, std::string> failed_;  // key -> why
    CompileQueue queue_{compile_mutex_};  // last: its thread ends first
};

}  // namespace megjit::codegen
