// codegen/imported_kernels.h -- kernels in the cache that any compiler made for this package and a
// CPU like ours: what a machine without a compiler runs (python -m megengine cache import).
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "codegen/disk_cache.h"
#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// The first lines of a key: who compiled, for whom, and with what. The kernel's text follows.
//   MLIR
//   megjit 0.1.0 for x86-64 avx avx2 fma
//   LLVM 22.1.8 ...
std::string disk_key(std::string_view compiler, std::string_view version, const KernelIR& legal);

class ImportedKernels {
public:
    // Reads the keys of all entries that may run here.
    explicit ImportedKernels(const DiskCache& cache);
    struct Found {
        std::string backend;
        KernelFn fn = nullptr;
    };
    // No function when there is none, or it does not load.
    Found find(const KernelIR& kernel) const;

private:
    const DiskCache& cache_;
    std::unordered_map<std::string, std::string> key_of_;  // text of a kernel -> key
};

}  // namespace megjit::codegen
