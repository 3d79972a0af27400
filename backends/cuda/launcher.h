// backends/cuda/launcher.h -- CudaLauncher: an image, loaded; launches with any numbers that it
// serves.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backends/cuda/gpu.h"
#include "codegen/gpu_image.h"

namespace megjit::cuda {

class CudaLauncher {
public:
    // DeviceError with the driver's log when the image does not load.
    CudaLauncher(const Gpu& gpu, std::shared_ptr<const codegen::GpuImage> image,
                 codegen::KernelIR kernel);
    ~CudaLauncher();
    CudaLauncher(const CudaLauncher&) = delete;
    CudaLauncher& operator=(const CudaLauncher&) = delete;

    // Queued on the GPU's stream. `launch` has the variant for which the image was made; inputs are
    // those in memory.
    void launch(const codegen::LaunchShape& launch, std::span<const Address> inputs,
                std::span<const Address> outputs) const;

private:
    std::vector<Address> memory_of_parts(const codegen::Grid& grid) const;

    const Gpu& gpu_;
    std::shared_ptr<const codegen::GpuImage> image_;
    codegen::KernelIR kernel_;
    Module module_ = nullptr;
    Function function_ = nullptr;
    // What blocks that share a row leave to each other. Launches follow each other on the stream,
    // so one will do.
    mutable std::mutex mutex_;
    mutable std::optional<Buffer> parts_, counters_;
    mutable uint32_t blocks_ = 0;  // for how many it is large enough
};

}  // namespace megjit::cuda
