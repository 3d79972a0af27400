#include "backends/cuda/launcher.h"

#include "runtime/error.h"

namespace megjit::cuda {
namespace {

using namespace codegen;
using runtime::cat;
using runtime::DeviceError;

// Numbers of the driver's interface.
constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // options of cuModuleLoadDataEx
constexpr int kMaxDynamicSharedBytes = 8;  // an attribute of functions
constexpr uint32_t kSharedBytesForAll = 48 << 10;  // more must be asked for
void* const kParameterEnd = nullptr;
void* const kParameterBuffer = reinterpret_cast<void*>(1);
void* const kParameterBytes = reinterpret_cast<void*>(2);

Module load(const Gpu& gpu, const GpuImage& image) {
    gpu.make_current();
    std::string log(8192, '\0');
    int options[] = {kErrorLog, kErrorLogBytes};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
    Module module = nullptr;
    // PTX is text that ends with a zero, as every std::string does.
    const Result result =
        gpu.driver().call().load_module(&module, image.code.c_str(), 2, options, values);
    if (result == 0) return module;
    try {
        gpu.driver().check(result, "cuModuleLoadDataEx");
    } catch (const DeviceError& error) {
        throw DeviceError(cat(error.what(), "\n  ", gpu.name(), " (sm_", gpu.arch(),
                              ") does not load a kernel's ", image.is_ptx ? "PTX" : "CUBIN", ": ",
                              log.c_str()));
    }
    return nullptr;
}

}  // namespace

CudaLauncher::CudaLauncher(const Gpu& gpu, std::shared_ptr<const GpuImage> image, KernelIR kernel)
    : gpu_(gpu), image_(std::move(image)), kernel_(std::move(kernel)), module_(load(gpu, *image_)) {
    const CudaDriver& driver = gpu.driver();
    try {
        driver.check(driver.call().function(&function_, module_, image_->entry.c_str()),
                     "cuModuleGetFunction");
        if (image_->shared_bytes > kSharedBytesForAll)
            driver.check(
                driver.call().set_function_attribute(function_, kMaxDynamicSharedBytes,
                                                     static_cast<int>(image_->shared_bytes)),
                "cuFuncSetAttribute");
    } catch (const DeviceError&) {
        driver.call().unload_module(module_);
        throw;
    }
}

CudaLauncher::~CudaLauncher() {
    gpu_.try_to_make_current();
    gpu_.driver().call().unload_module(module_);
}

std::vector<Address> CudaLauncher::memory_of_parts(const Grid& grid) const {
    if (image_->parts == 1) return {};
    const uint32_t blocks = grid.blocks[0];
    if (blocks > blocks_) {
        blocks_ = 0;  // until there is memory for more
        parts_.emplace(gpu_, size_t{blocks} * image_->parts * image_->part_bytes);
        counters_.emplace(gpu_, size_t{blocks} * sizeof(uint32_t));
        gpu_.clear(counters_->address(), size_t{blocks} * sizeof(uint32_t));
        blocks_ = blocks;
    }
    return {parts_->address(), counters_->address()};
}

void CudaLauncher::launch(const LaunchShape& launch, std::span<const Address> inputs,
                          std::span<const Address> outputs) const {
    const Grid grid = grid_of(*image_, kernel_, launch);
    if (grid.blocks[0] == 0) return;
    const std::lock_guard lock(mutex_);
    std::vector<uint64_t> words =
        parameters_of(*image_, launch, inputs, outputs, memory_of_parts(grid));
    size_t bytes = words.size() * sizeof(uint64_t);
    void* extra[] = {kParameterBuffer, words.data(), kParameterBytes, &bytes, kParameterEnd};
    const uint32_t* block = image_->block;
    gpu_.make_current();
    gpu_.driver().check(
        gpu_.driver().call().launch(function_, grid.blocks[0], grid.blocks[1], grid.blocks[2],
                                    block[0], block[1], block[2], image_->shared_bytes,
                                    gpu_.stream(), nullptr, extra),
        "cuLaunchKernel");
}

}  // namespace megjit::cuda
