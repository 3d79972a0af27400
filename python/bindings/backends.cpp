// Which devices and compilers are in this build: the only file that names them.
#ifdef MEGJIT_WITH_CPU
#include "backends/cpu/cpu_device.h"
#endif
#ifdef MEGJIT_WITH_CUDA
#include "backends/cuda/cuda_device.h"
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
#include "jit/op_program.h"
#include "memory/caching_allocator.h"
#include "python/bindings/handle.h"
#include "runtime/host/debug.h"

namespace megjit::python {

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
    cuda::discover_gpus(
        {.make_allocator = &memory::make_caching_allocator, .expand = &jit::op_program});
#endif
}

void register_compilers() {
#ifdef MEGJIT_WITH_NVRTC
    codegen::KernelService::instance().add(std::make_unique<nvrtc::NvrtcCompiler>());
#endif
#ifdef MEGJIT_WITH_MLIR
    codegen::KernelService::instance().add(std::make_unique<mlir_backend::MlirCompiler>());
    codegen::KernelService::instance().add(std::make_unique<mlir_backend::MlirGpuCompiler>());
#endif
#ifdef MEGJIT_WITH_HALIDE
    codegen::KernelService::instance().add(std::make_unique<halide_backend::HalideCompiler>());
    codegen::KernelService::instance().add(std::make_unique<halide_backend::HalideGpuCompiler>());
#endif
}

}  // namespace megjit::python
