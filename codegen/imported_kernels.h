// codegen/imported_kernels.h -- kernels that any compiler made for this version of the package and
// a CPU like ours, or for a GPU: a machine without a compiler runs these. They come from the cache
// (python -m megengine cache import), or from packaged models (python -m megengine package).
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "codegen/compiler.h"
#include "codegen/disk_cache.h"

namespace megjit::codegen {

// The target of the code: the second line of a key.
std::string target_of(const Compiler& compiler, const KernelJob& legal);
std::string name_of(CodeTarget target);  // of a GPU target: "sm_90"
// The first lines of a key: compiler, target, version. The kernel's text follows.
//   MLIR
//   megjit 0.1.0 for x86-64 avx avx2 fma           (or: sm_90 rows team=256/256 i32 x4)
//   LLVM 22.1.8 ...
std::string disk_key(const Compiler& compiler, std::string_view version, const KernelJob& legal);

class ImportedKernels {
public:
    ImportedKernels() = default;
    // Reads the keys of all entries that may run here.
    explicit ImportedKernels(const DiskCache& cache);
    void add(const CacheEntry& entry);  // its code is kept in memory
    struct Found {
        std::string backend;
        KernelCode code;
    };
    // Finds no code when there is none, or it does not load. Code for the host may come from any
    // compiler, code for a GPU only from one of `known`, which say what it takes from the launch.
    Found find(const KernelJob& job, std::span<const Compiler* const> known) const;
    // Finds CUDA C++ written by hand that `compiler` has compiled, in any version.
    std::optional<std::string> find_source(std::string_view compiler, CodeTarget target,
                                           const std::string& text) const;
    const std::set<std::string>& gpus() const { return gpus_; }  // as "sm_90"

private:
    void note(const std::string& key);
    Found load(const std::string& key, bool for_gpu) const;
    std::optional<std::string> bytes_of(const std::string& key) const;

    const DiskCache* cache_ = nullptr;
    std::unordered_map<std::string, std::string> objects_;  // code of the kernels in memory, by key
    // Maps a kernel's text (for a GPU preceded by compiler and target) to its key.
    std::unordered_map<std::string, std::string> key_of_;
    std::set<std::string> gpus_;
};

// The part before the compiler's version and the text in a key of CUDA C++ written by hand.
std::string source_key(std::string_view compiler, CodeTarget target);

// Keeps the kernels of models that this process has opened, and whose code it trusts.
void add_packaged_kernels(std::span<const CacheEntry> entries);
ImportedKernels::Found find_packaged_kernel(const KernelJob& job,
                                            std::span<const Compiler* const> known);
std::optional<std::string> find_packaged_source(std::string_view compiler, CodeTarget target,
                                                const std::string& text);
std::set<std::string> packaged_gpus();

}  // namespace megjit::codegen
