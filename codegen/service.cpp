#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>

#include "codegen/compiler.h"
#include "codegen/disk_cache.h"
#include "codegen/imported_kernels.h"
#include "codegen/row_plan.h"
#include "runtime/host/debug.h"
#include "runtime/host/mutex.h"

namespace megjit::codegen {
namespace {

namespace fs = std::filesystem;
using runtime::cat;

// Compilers are tried in this order when none is named. MGB_JIT_BACKEND may have any of these
// names, on any machine.
constexpr std::string_view kOnCpu[] = {"MLIR", "HALIDE"}, kOnGpus[] = {"NVRTC", "MLIR", "HALIDE"};
std::span<const std::string_view> backends_of(bool for_gpus) {
    return for_gpus ? std::span<const std::string_view>(kOnGpus) : kOnCpu;
}

double ms_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
}

// The same as `kernel`, for a user who asked for it again.
std::shared_ptr<const CompiledKernel> as_cached(
    const std::shared_ptr<const CompiledKernel>& kernel) {
    if (kernel->cached) return kernel;
    auto copy = std::make_shared<CompiledKernel>(*kernel);
    copy->cached = true;
    return copy;
}

// Names other GPUs that packaged models have kernels for: "; packaged models have code for sm_80".
std::string packaged_for_others(CodeTarget target) {
    const std::set<std::string> gpus = packaged_gpus();
    if (gpus.empty() || gpus.contains(cat("sm_", target.gpu_arch))) return "";
    std::string names;
    for (const std::string& name : gpus) names += (names.empty() ? "" : ", ") + name;
    return cat("; this GPU is sm_", target.gpu_arch, ", packaged models have code for ", names);
}

runtime::Message no_compiler(CodeTarget target) {
    if (target.is_gpu())
        return {.what = "no kernel compiler for GPUs is installed",
                .why = cat("neither NVRTC nor a plug-in was found, nor the kernel in the cache",
                           packaged_for_others(target)),
                .fix = "pip install nvidia-cuda-nvrtc, or name libnvrtc.so in MEGJIT_NVRTC"};
    const std::string& wanted = runtime::debug().jit_backend;
    return {
        .what = "no kernel compiler is installed",
        .why = cat("the plug-in for ", wanted.empty() ? kOnCpu[0] : std::string_view(wanted),
                   " was not found"),
        .fix =
            "build with MEGJIT_WITH_MLIR=ON, name the plug-in's folder in MEGJIT_PLUGIN_DIR, or import a cache of kernels"};
}

std::vector<const Compiler*> pointers_to(const std::vector<std::unique_ptr<Compiler>>& compilers) {
    std::vector<const Compiler*> result;
    for (const auto& compiler : compilers) result.push_back(compiler.get());
    return result;
}

KernelJob legal_for(const Compiler& compiler, const KernelJob& job) {
    KernelJob legal = job;
    legal.kernel = legalize(job.kernel, compiler.native());
    return legal;
}

// The key in memory: for a GPU's job it includes what code takes from the launch.
std::string memory_key(const Compiler& compiler, const KernelJob& job) {
    return cat(compiler.name(), "\n",
               job.is_for_gpu() ? target_of(compiler, legal_for(compiler, job)) : "", "\n",
               print(job.kernel));
}

// Writes a kernel that could not be compiled to a file, and returns its path; empty when that
// fails.
fs::path write_dump(const KernelIR& kernel) {
    fs::path folder = runtime::debug().dump_dir;
    if (folder.empty())
        folder = default_cache_folder().empty() ? fs::temp_directory_path()
                                                : default_cache_folder() / "failed";
    std::error_code ignored;
    fs::create_directories(folder, ignored);
    const std::string text = print(kernel);
    const fs::path file =
        folder / cat("kernel-", runtime::in_hex(std::hash<std::string>()(text)), ".txt");
    std::ofstream out(file);
    out << text;
    return out.flush() ? file : fs::path();
}

// Warns once for each compiler: the cause of one failure often breaks all kernels.
void report_failure(std::string_view backend, const KernelIR& kernel, const std::string& why) {
    static runtime::Mutex mutex{"failures to compile"};
    static std::set<std::string, std::less<>> reported;
    {
        const std::lock_guard lock(mutex);
        if (!reported.emplace(backend).second) return;
    }
    const fs::path dump = write_dump(kernel);
    warn_once(cat(
        backend, " could not compile a kernel, whose operations run one by one: ",
        why.substr(0, why.find('\n')),
        dump.empty() ? "" : cat("; to see it again: python -m megengine compile ", dump.string())));
}

}  // namespace

void refuse_unknown_backend(std::string_view backend) {
    if (std::find(std::begin(kOnGpus), std::end(kOnGpus), backend) != std::end(kOnGpus)) return;
    runtime::user_error(
        {.what =
             cat(backend == runtime::debug().jit_backend ? "MGB_JIT_BACKEND=" : "kernel backend ",
                 backend, " is not a kernel compiler"),
         .why = "valid are NVRTC, HALIDE and MLIR; on this machine's CPU MLIR serves",
         .fix = "set MGB_JIT_BACKEND=MLIR, or leave it unset"});
}

KernelCode GpuCompiler::code_of(const std::string& bytes) {
    std::optional<GpuImage> image = image_from_bytes(bytes);
    if (!image) throw runtime::DeviceError(cat(name(), ": these bytes are not an image"));
    return {.image = std::make_shared<const GpuImage>(std::move(*image))};
}

KernelService::KernelService() = default;
KernelService::~KernelService() = default;

KernelService& KernelService::instance() {
    static KernelService* service =
        new KernelService;  // never destroyed: kernels may run during exit
    return *service;
}

void KernelService::add(std::unique_ptr<Compiler> compiler) {
    const std::lock_guard lock(mutex_);
    compilers_.push_back(std::move(compiler));
}

std::vector<std::string_view> KernelService::backends(bool for_gpus) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string_view> names;
    for (const auto& compiler : compilers_)
        if (compiler->is_for_gpus() == for_gpus && compiler->available())
            names.push_back(compiler->name());
    return names;
}

bool KernelService::can_compile() const { return !backends().empty(); }

KernelCounters KernelService::counters() const {
    const std::lock_guard lock(mutex_);
    return counters_;
}

Compiler* KernelService::choose(bool for_gpus, std::string_view backend) const {
    const std::lock_guard lock(mutex_);
    if (backend.empty()) backend = runtime::debug().jit_backend;
    if (!backend.empty()) refuse_unknown_backend(backend);
    const auto named = [&](std::string_view name) -> Compiler* {
        for (const auto& compiler : compilers_)
            if (compiler->is_for_gpus() == for_gpus && compiler->name() == name)
                return compiler.get();
        return nullptr;
    };
    const std::span<const std::string_view> all = backends_of(for_gpus);
    Compiler* const wanted = named(backend);
    if (wanted && wanted->available()) return wanted;
    for (const std::string_view name : all) {
        Compiler* const compiler = named(name);
        if (!compiler || !compiler->available()) continue;
        if (!backend.empty())
            warn_once(cat("kernel compiler ", backend,
                          std::find(all.begin(), all.end(), backend) == all.end()
                              ? " serves GPUs only"
                          : wanted ? cat(": ", wanted->missing())
                                   : " was not built in",
                          "; ", name, " is used"));
        return compiler;
    }
    return nullptr;
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

DiskCache& KernelService::disk() {
    if (!disk_) disk_ = std::make_unique<DiskCache>(default_cache_folder());
    return *disk_;
}

KernelCode KernelService::load_from_disk(Compiler& compiler, const std::string& key) {
    const auto bytes = disk().find(key);
    if (!bytes) return {};
    try {
        return compiler.code_of(*bytes);
    } catch (const runtime::Error&) {
        return {};  // a file that passes its checksum and still does not load is compiled again
    }
}

std::shared_ptr<const CompiledKernel> KernelService::import(const KernelJob& job) {
    std::string key = cat("imported\n", job.target.gpu_arch, "\n", print(job.kernel));
    for (const int64_t number : job.launch.extents) key += cat(" ", number);
    for (const int64_t number : job.launch.strides) key += cat(" ", number);
    if (auto found = find(key)) return found;
    const auto start = std::chrono::steady_clock::now();
    const std::lock_guard compiling(compile_mutex_);
    if (!imported_) imported_ = std::make_unique<ImportedKernels>(disk());
    std::unique_lock lock(mutex_);
    const std::vector<const Compiler*> known = pointers_to(compilers_);
    lock.unlock();
    ImportedKernels::Found found = find_packaged_kernel(job, known);
    if (!found.code) found = imported_->find(job, known);
    if (!found.code) return nullptr;
    auto made = std::make_shared<CompiledKernel>();
    made->fn = found.code.fn;
    made->image = found.code.image;
    made->kernel = job.kernel;
    made->backend = found.backend;
    made->compile_ms = ms_since(start);
    made->cached = true;
    made->source = [kernel = job.kernel] { return print(kernel); };  // no compiler can show more
    keep(key, made);
    const std::lock_guard counting(mutex_);
    ++counters_.disk_hits;
    return made;
}

// Returns null only when `from_disk_only`.
std::shared_ptr<const CompiledKernel> KernelService::produce(Compiler& compiler,
                                                             const KernelJob& job,
                                                             const std::string& key,
                                                             bool from_disk_only) {
    const auto start = std::chrono::steady_clock::now();
    // Compilers and the disk get legal kernels: better formulas make another key, never stale code.
    const KernelJob legal = legal_for(compiler, job);
    const std::string on_disk = disk_key(compiler, compiler.version_key(), legal);
    KernelCode code = load_from_disk(compiler, on_disk);
    if (!code) {
        std::unique_lock lock(mutex_);
        const std::vector<const Compiler*> known = pointers_to(compilers_);
        lock.unlock();
        code = find_packaged_kernel(job, known).code;
    }
    auto made = std::make_shared<CompiledKernel>();
    made->cached = static_cast<bool>(code);
    if (!code) {
        if (from_disk_only) return nullptr;
        if (const std::string fault = fault_of(job.kernel); !fault.empty())
            throw runtime::InternalError(cat("unsound kernel: ", fault, "\n", print(job.kernel)));
        const std::string bytes = compiler.bytes_of(legal);
        code = compiler.code_of(bytes);
        disk_->store(on_disk, bytes);
    }
    made->fn = code.fn;
    made->image = std::move(code.image);
    made->kernel = job.kernel;
    made->backend = compiler.name();
    made->compile_ms = ms_since(start);
    // Compilers live as long as the service, which is never destroyed.
    made->source = [this, &compiler, legal] {
        const std::lock_guard compiling(compile_mutex_);
        return compiler.source_of(legal);
    };
    made->assembly = [this, &compiler, legal] {
        const std::lock_guard compiling(compile_mutex_);
        return compiler.assembly_of(legal);
    };
    {
        const std::lock_guard counting(mutex_);
        ++(made->cached ? counters_.disk_hits : counters_.compiled);
        counters_.compile_ms += made->compile_ms;
    }
    keep(key, made);
    runtime::debug().dump("kernel", {{".txt", [&] {
        return cat(print(job.kernel), "\n",
                   legal.kernel.reduced ? cat(print(row_plan_of(legal.kernel)), "\n") : "",
                   compiler.source_of(legal), "\n");
    }}});
    return made;
}

std::string KernelService::object_of(const KernelIR& kernel, runtime::Isa isa) {
    Compiler* const compiler = choose(false, "MLIR");
    const std::lock_guard compiling(compile_mutex_);
    std::string object = compiler ? compiler->object_for(kernel, isa) : "";
    if (object.empty())
        runtime::user_error({.what = "object code is MLIR's, which is not installed"});
    return object;
}

std::shared_ptr<const CompiledKernel> KernelService::get(const KernelJob& job,
                                                         std::string_view backend) {
    Compiler* compiler = choose(job.is_for_gpu(), backend);
    if (!compiler) {
        if (auto imported = import(job)) return imported;
        runtime::user_error(no_compiler(job.target), runtime::ErrorKind::runtime);
    }
    const std::string key = memory_key(*compiler, job);
    if (auto found = find(key)) return found;
    const std::lock_guard compiling(compile_mutex_);
    if (auto found = find(key)) return found;  // another thread was faster
    return produce(*compiler, job, key, false);
}

std::string KernelService::compile_cuda(const std::string& text, CodeTarget target) {
    Compiler* found = nullptr;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& compiler : compilers_)
            if (compiler->is_for_gpus() && static_cast<GpuCompiler&>(*compiler).compiles_cuda())
                found = compiler.get();
    }
    const std::lock_guard compiling(compile_mutex_);
    const std::string_view name = found ? found->name() : "NVRTC";
    if (!found || !found->available()) {
        if (auto packaged = find_packaged_source(name, target, text)) return *packaged;
        if (!imported_) imported_ = std::make_unique<ImportedKernels>(disk());
        if (auto imported = imported_->find_source(name, target, text)) return *imported;
        runtime::user_error(
            {.what = "operations of a GPU that no generated kernel serves need NVRTC",
             .why = cat(found ? found->missing() : "this build has no backends/nvrtc",
                        packaged_for_others(target)),
             .fix = "pip install nvidia-cuda-nvrtc, or name libnvrtc.so in MEGJIT_NVRTC, or import "
                    "kernels: python -m megengine cache import FILE"},
            runtime::ErrorKind::runtime);
    }
    const std::string key = cat(source_key(name, target), found->version_key(), "\n", text);
    if (auto kept = disk().find(key)) return *kept;
    if (auto packaged = find_packaged_source(name, target, text)) return *packaged;
    std::string code = static_cast<GpuCompiler&>(*found).compile_cuda(text, target);
    disk_->store(key, code);
    return code;
}

std::shared_ptr<const KernelRequest> KernelService::request(const KernelJob& job,
                                                            std::string_view backend) {
    auto made = std::make_shared<KernelRequest>(job);
    Compiler* compiler = choose(job.is_for_gpu(), backend);
    if (!compiler) {
        if (auto imported = import(job)) return made->succeed(std::move(imported)), made;
        const runtime::Message why = no_compiler(job.target);
        warn_once(cat(why.what, ": ", why.why, "; operations run one by one; ", why.fix));
        made->fail(why.what);
        return made;
    }
    std::string key = memory_key(*compiler, job);
    if (auto found = find(key)) return made->succeed(std::move(found)), made;
    {
        const std::lock_guard lock(mutex_);
        if (const auto it = failed_.find(key); it != failed_.end())
            return made->fail(it->second), made;
        if (const auto it = wanted_.find(key); it != wanted_.end())
            if (auto same = it->second.lock()) return same;
    }
    // While nothing compiles, looking at the disk is faster than waiting for the other thread.
    if (std::unique_lock compiling(compile_mutex_, std::try_to_lock); compiling.owns_lock()) {
        try {
            if (auto found = produce(*compiler, job, key, true))
                return made->succeed(std::move(found)), made;
        } catch (const runtime::Error&) {  // the other thread meets the same error, and reports it
        }
    }
    {
        const std::lock_guard lock(mutex_);
        wanted_[key] = made;
    }
    const bool added =
        queue_.add([this, compiler, key = std::move(key), wanted = std::weak_ptr(made)] {
        if (const auto request = wanted.lock()) serve(*compiler, *request, key);
        const std::lock_guard lock(mutex_);
        wanted_.erase(key);
    });
    if (!added) made->fail("too many kernels wait to be compiled, or the process ends");
    return made;
}

void KernelService::serve(Compiler& compiler, KernelRequest& request, const std::string& key) {
    std::string why;
    try {
        auto found = find(key);
        return request.succeed(found ? std::move(found)
                                     : produce(compiler, request.job_, key, false));
    } catch (const std::exception& error) { why = error.what(); }
    report_failure(compiler.name(), request.kernel(), why);
    {
        const std::lock_guard lock(mutex_);
        failed_[key] = why;
    }
    request.fail(std::move(why));
}

void KernelService::wait(const KernelRequests& requests, CompileQueue::Clock::time_point until) {
    queue_.wait([&] {
        return std::all_of(requests.begin(), requests.end(),
                           [](const auto& request) { return request->is_done(); });
    }, until);
}

CompileMode compile_mode() {
    const std::string& mode = runtime::debug().compile;
    if (mode.empty() || mode == "async") return CompileMode::async;
    if (mode == "sync") return CompileMode::sync;
    if (mode == "off") return CompileMode::off;
    runtime::user_error({.what = cat("MEGJIT_COMPILE=", mode, " is not a way to compile"),
                         .why = "valid are async, sync and off",
                         .fix = "leave it unset, for async"});
}

}  // namespace megjit::codegen
