// The only file that names devices and compilers.
#include "jit/api/backends.h"

#include <cstdlib>
#include <map>
#include <mutex>

#ifdef MEGJIT_WITH_CPU
#include "backends/cpu/cpu_device.h"
#endif
#ifdef MEGJIT_WITH_CUDA
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/described_card.h"
#endif
#ifdef MEGJIT_WITH_NVRTC
#include "backends/nvrtc/compiler.h"
#endif
#ifdef MEGJIT_WITH_HALIDE
#include "backends/halide/gpu_compiler.h"
#endif
#ifdef MEGJIT_WITH_MLIR
#include "backends/mlir/gpu_compiler.h"
#endif
#include "codegen/compiler.h"
#include "jit/plan/op_program.h"
#include "jit/plan/ops/control_flow.h"
#include "memory/caching_allocator.h"
#include "memory/dtr.h"
#include "runtime/core/rematerializer.h"
#include "runtime/host/error.h"
#include "runtime/host/isa.h"
#include "runtime/host/mutex.h"

namespace megjit::api {
namespace {

#ifdef MEGJIT_WITH_CUDA
constexpr cuda::Services kServicesOfGpus{.make_allocator = &memory::make_caching_allocator,
                                         .expand = &jit::op_program};
#endif

void register_devices() {
#ifdef MEGJIT_WITH_CPU
    runtime::register_device(std::make_unique<cpu::CpuDevice>(
        std::make_unique<memory::CachingAllocator>(), &jit::op_program));
#else
    runtime::user_error({.what = "this build has no device that computes",
                         .fix = "configure it with -DMEGJIT_WITH_CPU=ON"},
                        runtime::ErrorKind::runtime);
#endif
#ifdef MEGJIT_WITH_CUDA
    cuda::discover_gpus(kServicesOfGpus);
#endif
}

// Unused in a build without any compiler.
void register_compilers([[maybe_unused]] const std::filesystem::path& plugins,
                        [[maybe_unused]] const std::filesystem::path& libhalide) {
    [[maybe_unused]] codegen::KernelService& service = codegen::KernelService::instance();
#ifdef MEGJIT_WITH_NVRTC
    service.add(std::make_unique<nvrtc::NvrtcCompiler>());
#endif
#ifdef MEGJIT_WITH_MLIR
    const std::filesystem::path mlir = plugins / "libmegjit_mlir.so";
    service.add(std::make_unique<mlir_backend::MlirCompiler>(mlir));
    service.add(std::make_unique<mlir_backend::MlirGpuCompiler>(mlir));
#endif
#ifdef MEGJIT_WITH_HALIDE
    const std::filesystem::path halide = plugins / "libmegjit_halide.so";
    std::filesystem::path library = plugins / "../halide/lib64/libHalide.so";  // a Python package
    std::error_code ignored;
    if (!libhalide.empty() && !std::filesystem::exists(library, ignored)) library = libhalide;
    service.add(std::make_unique<halide_backend::HalideCompiler>(halide, library));
    service.add(std::make_unique<halide_backend::HalideGpuCompiler>(halide, library));
#endif
}

}  // namespace

void start(const std::filesystem::path& plugins, const std::filesystem::path& libhalide) {
    runtime::isa();  // before anything is made: an older CPU and a wrong MEGJIT_ISA stop here
    runtime::register_all_ops();
    jit::register_control_flow_ops();
    register_devices();
    std::atexit([] {  // no stream works while the process takes itself down
        for (runtime::Device* device : runtime::all_devices())
            for (runtime::Stream* stream : {&device->stream(), &device->copy_stream()}) try {
                    stream->synchronize();
                } catch (...) {}
    });
    runtime::Rematerializer::instance().set_policy(std::make_unique<memory::DtrPolicy>());
    register_compilers(plugins, libhalide);
}

runtime::Device& described_gpu([[maybe_unused]] int arch, [[maybe_unused]] bool for_plans) {
#ifdef MEGJIT_WITH_CUDA
    // Never destroyed: what was prepared for them is kept.
    static runtime::Mutex mutex{"described GPUs"};
    static auto& devices = *new std::map<std::pair<int, bool>, std::unique_ptr<runtime::Device>>;
    const std::lock_guard lock(mutex);
    std::unique_ptr<runtime::Device>& device = devices[{arch, for_plans}];
    if (!device) device = cuda::described_device(arch, kServicesOfGpus, !for_plans);
    return *device;
#else
    runtime::user_error(
        {.what = "this build has no GPUs", .fix = "configure it with -DMEGJIT_WITH_CUDA=ON"},
        runtime::ErrorKind::runtime);
#endif
}

}  // namespace megjit::api
