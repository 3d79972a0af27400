#include "backends/nvrtc/compiler.h"

#include <algorithm>
#include <functional>

#include "backends/nvrtc/library.h"
#include "backends/nvrtc/print_kernel.h"
#include "codegen/disk_cache.h"
#include "runtime/host/error.h"

namespace megjit::nvrtc {

using namespace codegen;
using runtime::cat;
using runtime::DeviceError;

NvrtcCompiler::NvrtcCompiler()
    : NvrtcCompiler(runtime::candidates_of(runtime::NvidiaLibrary::nvrtc)) {}
NvrtcCompiler::NvrtcCompiler(std::vector<std::filesystem::path> candidates)
    : candidates_(std::move(candidates)) {}
NvrtcCompiler::~NvrtcCompiler() = default;

const Library& NvrtcCompiler::library() const {
    const std::lock_guard lock(mutex_);
    if (!library_) library_ = std::make_unique<Library>(candidates_);
    return *library_;
}

std::string NvrtcCompiler::missing() const {
    return library().found() ? "" : "it needs libnvrtc: pip install nvidia-cuda-nvrtc";
}

std::string NvrtcCompiler::version_key() const {
    return cat("nvrtc ", library().version(), " ", std::hash<std::string_view>()(prelude()));
}

// Includes a hash of the text, so that a changed printer never gets code that an older one left in
// the cache.
std::string NvrtcCompiler::variant(const KernelIR& kernel, const LaunchShape& launch,
                                   CodeTarget target) const {
    const GpuPlan plan = gpu_plan_of(kernel, launch, target);
    return cat(print(plan), " ",
               std::hash<std::string>()(print_kernel(kernel, plan, GpuImage().entry)));
}

std::string NvrtcCompiler::source(const KernelIR& kernel, const LaunchShape& launch,
                                  CodeTarget target) {
    return cat(prelude(),
               print_kernel(kernel, gpu_plan_of(kernel, launch, target), GpuImage().entry));
}

// Returns the newest architecture up to `arch` that NVRTC knows.
int NvrtcCompiler::arch_for(int arch) const {
    const Library& nvrtc = library();
    if (!nvrtc.found()) throw DeviceError(cat("NVRTC is missing: ", nvrtc.why_not()));
    const std::vector<int>& known = nvrtc.archs();
    const auto newest = std::upper_bound(known.begin(), known.end(), arch);
    if (newest == known.begin())
        throw DeviceError(cat("NVRTC ", nvrtc.version(), " no longer compiles for sm_", arch,
                              "; its oldest is sm_", known.front()));
    if (newest[-1] != arch)
        warn_once(cat("NVRTC ", nvrtc.version(), " does not know sm_", arch,
                      "; kernels are compiled for compute_", newest[-1],
                      " and finished by the driver"));
    return newest[-1];
}

std::string NvrtcCompiler::compile_cuda(const std::string& text, CodeTarget target) {
    const int arch = arch_for(target.gpu_arch);
    const bool is_ptx = target.as_ptx || arch != target.gpu_arch;
    return library().compile(text, cat(is_ptx ? "compute_" : "sm_", arch));
}

GpuImage NvrtcCompiler::compile(const KernelIR& kernel, const LaunchShape& launch,
                                CodeTarget target) {
    GpuImage image = image_of(kernel, gpu_plan_of(kernel, launch, target));
    image.code = compile_cuda(source(kernel, launch, target), target);
    image.is_ptx = target.as_ptx || arch_for(target.gpu_arch) != target.gpu_arch;
    return image;
}

}  // namespace megjit::nvrtc
