// codegen/gpu_service.h -- GpuService: finds or compiles images of kernels for GPUs, as
// KernelService does for the host; they share the cache on disk.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codegen/gpu_image.h"

namespace megjit::codegen {

class DiskCache;

// Thread-safe. One process has one service; devices keep what they loaded.
class GpuService {
public:
    static constexpr size_t kMaxImages =
        4096;  // in memory; beyond it all are forgotten, and come from disk again

    GpuService();
    ~GpuService();
    static GpuService& instance();
    void add(std::unique_ptr<GpuCompiler> compiler);
    std::vector<std::string_view> backends() const;  // those available
    // `backend` "" means MGB_JIT_BACKEND, or the first available of NVRTC, MLIR, HALIDE. UserError
    // when the name is unknown; one that is known and missing is replaced with a warning. Where
    // none is available, what was imported into the cache is found; else UserError.
    std::shared_ptr<const GpuImage> get(const KernelIR& kernel, const LaunchShape& launch, int arch,
                                        std::string_view backend = "");

private:
    GpuCompiler* choose(std::string_view backend) const;  // null: none is available
    std::shared_ptr<const GpuImage> find(const std::string& key) const;
    std::shared_ptr<const GpuImage> keep(const std::string& key, GpuImage image);
    // With compile_mutex_:
    DiskCache& disk();
    GpuImage make(GpuCompiler& compiler, const KernelIR& legal, const LaunchShape& launch, int arch,
                  const std::string& key);
    std::shared_ptr<const GpuImage> import(const KernelIR& legal, const LaunchShape& launch,
                                           int arch);  // or null

    mutable std::mutex mutex_;  // guards the compilers and the images
    std::mutex compile_mutex_;  // one image is compiled at a time, so that no work is done twice
    std::vector<std::unique_ptr<GpuCompiler>> compilers_;
    std::unordered_map<std::string, std::shared_ptr<const GpuImage>> images_;
    std::unique_ptr<DiskCache>
        disk_;  // made at the first compile; guarded by compile_mutex_, as is the next one
    std::optional<std::unordered_map<std::string, std::string>>
        imported_;  // keys less the version -> keys
};

}  // namespace megjit::codegen
