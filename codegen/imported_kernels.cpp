#include "codegen/imported_kernels.h"

#include <mutex>

#include "codegen/host_cpu.h"
#include "codegen/object_loader.h"
#include "runtime/host/error.h"
#include "runtime/host/mutex.h"

namespace megjit::codegen {
namespace {

constexpr std::string_view kPackage = "megjit " MEGJIT_VERSION " for ", kGpu = "sm_";

// Removes a line from the front of the text, and returns it.
std::string_view take_line(std::string_view& text) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

std::string_view target_in(std::string_view key) {
    take_line(key);
    return take_line(key);
}

struct Packaged {
    runtime::Mutex mutex{"the kernels of models", runtime::Rank::inner};
    ImportedKernels kernels;
};
Packaged& packaged() {
    static auto* const instance = new Packaged;  // never destroyed: threads outlive main()
    return *instance;
}

}  // namespace

std::string target_of(const Compiler& compiler, const KernelJob& legal) {
    using runtime::cat;
    return legal.is_for_gpu() ? cat(name_of(legal.target), " ", compiler.variant_of(legal))
                              : cat(kPackage, host_features());
}

std::string name_of(CodeTarget target) {
    return runtime::cat(kGpu, target.gpu_arch, target.as_ptx ? " ptx" : "");
}

std::string disk_key(const Compiler& compiler, std::string_view version, const KernelJob& legal) {
    return runtime::cat(compiler.name(), "\n", target_of(compiler, legal), "\n", version, "\n",
                        print(legal.kernel));
}

std::string source_key(std::string_view compiler, CodeTarget target) {
    return runtime::cat(compiler, "\n", name_of(target), " source\n");
}

ImportedKernels::ImportedKernels(const DiskCache& cache) : cache_(&cache) {
    cache.each([this](const CacheEntry& entry) { note(entry.key); });
}

void ImportedKernels::add(const CacheEntry& entry) {
    if (objects_.emplace(entry.key, entry.object).second) note(entry.key);
}

void ImportedKernels::note(const std::string& key) {
    std::string_view rest = key;
    const std::string_view compiler = take_line(rest), target = take_line(rest);
    take_line(rest);
    if (target.starts_with(kGpu)) {
        key_of_.emplace(runtime::cat(compiler, "\n", target, "\n", rest), key);
        gpus_.emplace(target.substr(0, target.find(' ')));
    } else if (target.starts_with(kPackage) && runs_here(target.substr(kPackage.size()))) {
        std::string& best = key_of_[std::string(rest)];  // uses the most CPU features
        if (best.empty() || target_in(best).size() < target.size()) best = key;
    }
}

ImportedKernels::Found ImportedKernels::find(const KernelJob& job,
                                             std::span<const Compiler* const> known) const {
    if (key_of_.empty()) return {};  // the usual case: asked before each kernel is compiled
    std::vector<std::string> texts;
    if (job.is_for_gpu()) {
        for (const Compiler* compiler : known) {
            if (!compiler->is_for_gpus()) continue;
            KernelJob legal = job;
            legal.kernel = legalize(job.kernel, compiler->native());
            texts.push_back(runtime::cat(compiler->name(), "\n", target_of(*compiler, legal), "\n",
                                         print(legal.kernel)));
        }
    } else {
        for (const NativeOps native : {kAllNative, NativeOps{}})
            texts.push_back(print(legalize(job.kernel, native)));
    }
    for (const std::string& text : texts)
        if (const auto it = key_of_.find(text); it != key_of_.end())
            if (Found found = load(it->second, job.is_for_gpu()); found.code) return found;
    return {};
}

std::optional<std::string> ImportedKernels::find_source(std::string_view compiler,
                                                        CodeTarget target,
                                                        const std::string& text) const {
    const auto it = key_of_.find(source_key(compiler, target) + text);
    return it == key_of_.end() ? std::nullopt : bytes_of(it->second);
}

std::optional<std::string> ImportedKernels::bytes_of(const std::string& key) const {
    const auto held = objects_.find(key);
    if (held != objects_.end()) return held->second;
    return cache_ ? cache_->find(key) : std::nullopt;
}

ImportedKernels::Found ImportedKernels::load(const std::string& key, bool for_gpu) const {
    const auto bytes = bytes_of(key);
    if (!bytes) return {};
    Found found{.backend = key.substr(0, key.find('\n')), .code = {}};
    if (for_gpu) {
        if (auto image = image_from_bytes(*bytes))
            found.code.image = std::make_shared<const GpuImage>(std::move(*image));
    } else {
        try {
            found.code.fn = load_object(*bytes);
        } catch (const runtime::Error&) {}  // it counts as missing
    }
    return found;
}

void add_packaged_kernels(std::span<const CacheEntry> entries) {
    const std::lock_guard lock(packaged().mutex);
    for (const CacheEntry& entry : entries) packaged().kernels.add(entry);
}

ImportedKernels::Found find_packaged_kernel(const KernelJob& job,
                                            std::span<const Compiler* const> known) {
    const std::lock_guard lock(packaged().mutex);
    return packaged().kernels.find(job, known);
}

std::optional<std::string> find_packaged_source(std::string_view compiler, CodeTarget target,
                                                const std::string& text) {
    const std::lock_guard lock(packaged().mutex);
    return packaged().kernels.find_source(compiler, target, text);
}

std::set<std::string> packaged_gpus() {
    const std::lock_guard lock(packaged().mutex);
    return packaged().kernels.gpus();
}

}  // namespace megjit::codegen
