#include "codegen/gpu_service.h"

#include <algorithm>

#include "codegen/compiler.h"
#include "codegen/disk_cache.h"
#include "codegen/legalize.h"
#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::codegen {
namespace {

using runtime::cat;

// The order in which they are taken when none is named.
constexpr std::string_view kByDefault[] = {"NVRTC", "MLIR", "HALIDE"};

// Lines: the compiler, the architecture and variant, the compiler's version, the kernel.
std::string key_of(const GpuCompiler& compiler, const KernelIR& legal, const LaunchShape& launch,
                   int arch, const std::string& version) {
    return cat(compiler.name(), "\nsm_", arch, " ", compiler.variant(legal, launch), "\n", version,
               "\n", print(legal));
}

std::string without_version(std::string key) {
    const size_t version = key.find('\n', key.find('\n') + 1) + 1;
    return key.erase(version, key.find('\n', version) - version);
}

}  // namespace

GpuService::GpuService() = default;
GpuService::~GpuService() = default;

GpuService& GpuService::instance() {
    static GpuService* service =
        new GpuService;  // never destroyed: threads may compile during exit
    return *service;
}

void GpuService::add(std::unique_ptr<GpuCompiler> compiler) {
    const std::lock_guard lock(mutex_);
    compilers_.push_back(std::move(compiler));
}

std::vector<std::string_view> GpuService::backends() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string_view> names;
    for (const auto& compiler : compilers_)
        if (compiler->available()) names.push_back(compiler->name());
    return names;
}

GpuCompiler* GpuService::choose(std::string_view backend) const {
    const std::lock_guard lock(mutex_);
    if (backend.empty()) backend = runtime::debug().jit_backend;
    if (!backend.empty()) refuse_unknown_backend(backend);
    const auto named = [&](std::string_view name) -> GpuCompiler* {
        for (const auto& compiler : compilers_)
            if (compiler->name() == name) return compiler.get();
        return nullptr;
    };
    GpuCompiler* wanted = named(backend);
    if (wanted && wanted->available()) return wanted;
    for (std::string_view name : kByDefault) {
        GpuCompiler* compiler = named(name);
        if (!compiler || !compiler->available()) continue;
        if (!backend.empty())
            warn_once(cat("kernel compiler ", backend,
                          wanted ? cat(": ", wanted->missing()) : " was not built in", "; ", name,
                          " is used"));
        return compiler;
    }
    return nullptr;
}

std::shared_ptr<const GpuImage> GpuService::find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto it = images_.find(key);
    return it == images_.end() ? nullptr : it->second;
}

std::shared_ptr<const GpuImage> GpuService::keep(const std::string& key, GpuImage image) {
    const std::lock_guard lock(mutex_);
    if (images_.size() >= kMaxImages) images_.clear();
    return images_[key] = std::make_shared<const GpuImage>(std::move(image));
}

DiskCache& GpuService::disk() {
    if (!disk_) disk_ = std::make_unique<DiskCache>(default_cache_folder());
    return *disk_;
}

GpuImage GpuService::make(GpuCompiler& compiler, const KernelIR& legal, const LaunchShape& launch,
                          int arch, const std::string& key) {
    if (const auto bytes = disk().find(key))
        if (auto image = image_from_bytes(*bytes)) return std::move(*image);
    GpuImage image = compiler.compile(legal, launch, arch);
    disk().store(key, to_bytes(image));
    runtime::debug().dump("kernel", {{".txt", [&] {
        return cat(print(legal), "\n", compiler.source(legal, launch, arch), "\n");
    }}});
    return image;
}

std::shared_ptr<const GpuImage> GpuService::import(const KernelIR& legal, const LaunchShape& launch,
                                                   int arch) {
    if (!imported_) {
        imported_.emplace();
        disk().each([&](const CacheEntry& entry) {
            imported_->emplace(without_version(entry.key), entry.key);
        });
    }
    const std::lock_guard lock(mutex_);
    for (const auto& compiler : compilers_) {
        const auto it = imported_->find(key_of(*compiler, legal, launch, arch, ""));
        if (it == imported_->end()) continue;
        const auto bytes = disk_->find(it->second);
        if (auto image = bytes ? image_from_bytes(*bytes) : std::nullopt)
            return std::make_shared<const GpuImage>(std::move(*image));
    }
    return nullptr;
}

std::shared_ptr<const GpuImage> GpuService::get(const KernelIR& kernel, const LaunchShape& launch,
                                                int arch, std::string_view backend) {
    GpuCompiler* compiler = choose(backend);
    const KernelIR legal = legalize(kernel);
    if (!compiler) {
        const std::lock_guard compiling(compile_mutex_);
        if (auto imported = import(legal, launch, arch)) return imported;
        runtime::user_error(
            {.what = "no kernel compiler for GPUs is installed",
             .why = "neither NVRTC nor a plug-in was found, nor the kernel in the cache",
             .fix = "pip install nvidia-cuda-nvrtc, or name libnvrtc.so in MEGJIT_NVRTC"},
            runtime::ErrorKind::runtime);
    }
    const std::string key = key_of(*compiler, legal, launch, arch, compiler->version_key());
    if (auto found = find(key)) return found;
    const std::lock_guard compiling(compile_mutex_);
    if (auto found = find(key)) return found;  // another thread was faster
    if (const std::string fault = fault_of(kernel); !fault.empty())
        throw runtime::InternalError(cat("unsound kernel: ", fault, "\n", print(kernel)));
    return keep(key, make(*compiler, legal, launch, arch, key));
}

}  // namespace megjit::codegen
