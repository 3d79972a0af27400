#include <algorithm>
#include <chrono>

#include "codegen/compiler.h"
#include "codegen/disk_cache.h"
#include "codegen/expand_math.h"
#include "runtime/debug.h"

namespace megjit::codegen {
namespace {

using runtime::cat;

// Every name that MGB_JIT_BACKEND may have, on any machine.
constexpr std::string_view kBackends[] = {"NVRTC", "HALIDE", "MLIR"};
constexpr std::string_view kDefaultOnCpu = "MLIR";

double ms_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// As `kernel`, told to a user who asked for it again.
std::shared_ptr<const CompiledKernel> as_cached(const std::shared_ptr<const CompiledKernel>& kernel) {
    if (kernel->cached) return kernel;
    auto copy = std::make_shared<CompiledKernel>(*kernel);
    copy->cached = true;
    return copy;
}

}  // namespace

void refuse_unknown_backend(std::string_view backend) {
    if (std::find(std::begin(kBackends), std::end(kBackends), backend) != std::end(kBackends)) return;
    runtime::user_error({.what = cat(backend == runtime::debug().jit_backend ? "MGB_JIT_BACKEND=" : "kernel backend ", backend, " is not a kernel compiler"),
                         .why = "valid are NVRTC, HALIDE and MLIR; on this machine's CPU MLIR serves",
                         .fix = "set MGB_JIT_BACKEND=MLIR, or leave it unset"});
}

KernelService::KernelService() = default;
KernelService::~KernelService() = default;

KernelService& KernelService::instance() {
    static KernelService* service = new KernelService;  // never destroyed: kernels may run during exit
    return *service;
}

void KernelService::add(std::unique_ptr<KernelCompiler> compiler) {
    const std::lock_guard lock(mutex_);
    compilers_.push_back(std::move(compiler));
}

std::vector<std::string_view> KernelService::backends() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string_view> names;
    for (const auto& compiler : compilers_)
        if (compiler->available()) names.push_back(compiler->name());
    return names;
}

bool KernelService::can_compile() const { return !backends().empty(); }

KernelCounters KernelService::counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
}

KernelCompiler& KernelService::choose(std::string_view backend) const {
    const std::lock_guard lock(mutex_);
    if (backend.empty()) backend = runtime::debug().jit_backend;
    if (backend.empty()) backend = kDefaultOnCpu;
    const auto named = [&](std::string_view name) -> KernelCompiler* {
        for (const auto& compiler : compilers_)
            if (compiler->name() == name && compiler->available()) return compiler.get();
        return nullptr;
    };
    if (KernelCompiler* compiler = named(backend)) return *compiler;
    refuse_unknown_backend(backend);
    KernelCompiler* fallback = named(kDefaultOnCpu);
    if (!fallback)
        runtime::user_error({.what = "no kernel compiler is installed", .why = cat("the plug-in for ", backend, " was not found"),
                             .fix = "build with MEGJIT_WITH_MLIR=ON, or name the plug-in's folder in MEGJIT_PLUGIN_DIR"},
                            runtime::ErrorKind::runtime);
    warn_once(cat("kernel compiler ", backend, backend == "NVRTC" ? " serves GPUs only" : " cannot serve this CPU", "; ",
                  fallback->name(), " is used"));
    return *fallback;
}

std::shared_ptr<const CompiledKernel> KernelService::find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto it = kernels_.find(key);
    if (it == kernels_.end()) return nullptr;
    ++counters_.memory_hits;
    recent_.splice(recent_.begin(), recent_, it->second);
    return it->second->second = as_cached(it->second->second);
}

void KernelService::keep(const std::string& key, std::shared_ptr<const CompiledKernel> kernel) {
    const std::lock_guard lock(mutex_);
    recent_.emplace_front(key, std::move(kernel));
    kernels_[recent_.front().first] = recent_.begin();
    if (recent_.size() <= kMaxKernels) return;
    kernels_.erase(recent_.back().first);
    recent_.pop_back();
}

std::shared_ptr<CompiledKernel> KernelService::make(KernelCompiler& compiler, const KernelIR& kernel, bool& from_disk) {
    // The key holds the expanded program: better formulas make another key, never stale code.
    const KernelIR expanded = expand_math(kernel);
    const std::string disk_key = cat(compiler.name(), "\n", compiler.version_key(), "\n", print(expanded));
    if (!disk_) disk_ = std::make_unique<DiskCache>(default_cache_folder());

    auto made = std::make_shared<CompiledKernel>();
    if (const auto object = disk_->find(disk_key)) {
        // A file that passes its checksum and still does not load is compiled again.
        try {
            made->fn = compiler.load(*object);
            from_disk = made->cached = true;
        } catch (const runtime::Error&) {
        }
    }
    if (!made->fn) {
        const std::string object = compiler.compile(expanded);
        made->fn = compiler.load(object);
        disk_->store(disk_key, object);
    }
    made->kernel = kernel;
    made->backend = compiler.name();
    // Compilers live as long as the service, which is for ever.
    made->source = [&compiler, expanded] { return compiler.source(expanded); };
    return made;
}

std::shared_ptr<const CompiledKernel> KernelService::get(const KernelIR& kernel, std::string_view backend) {
    KernelCompiler& compiler = choose(backend);
    const std::string text = print(kernel);
    const std::string key = cat(compiler.name(), "\n", text);
    if (auto found = find(key)) return found;
    const std::lock_guard lock(compile_mutex_);
    if (auto found = find(key)) return found;  // another thread was faster
    if (const std::string fault = fault_of(kernel); !fault.empty())
        throw runtime::InternalError(cat("unsound kernel: ", fault, "\n", text));
    const auto start = std::chrono::steady_clock::now();
    bool from_disk = false;
    auto made = make(compiler, kernel, from_disk);
    made->compile_ms = ms_since(start);
    {
        const std::lock_guard counting(mutex_);
        ++(from_disk ? counters_.disk_hits : counters_.compiled);
        counters_.compile_ms += made->compile_ms;
    }
    keep(key, made);
    runtime::debug().dump("kernel", {{".txt", [&] { return cat(text, "\n", made->source(), "\n"); }}});
    return made;
}

}  // namespace megjit::codegen
