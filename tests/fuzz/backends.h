// tests/fuzz/backends.h -- the ops, the CPU device and the compilers of this build, made once for a
// program.
#pragma once

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "backends/nvrtc/compiler.h"
#include "codegen/compiler.h"
#include "jit/plan/op_program.h"
#include "jit/plan/ops/control_flow.h"
#include "memory/caching_allocator.h"
#include "runtime/core/op.h"
#ifdef MEGJIT_MLIR_PLUGIN
#include "backends/mlir/gpu_compiler.h"
#include "backends/mlir/loader.h"
#endif
#ifdef MEGJIT_HALIDE_PLUGIN
#include "backends/halide/gpu_compiler.h"
#include "backends/halide/loader.h"
#endif

namespace megjit::fuzz {

inline void start_backends() {
    runtime::register_all_ops();
    jit::register_control_flow_ops();
    runtime::register_device(std::make_unique<cpu::CpuDevice>(
        std::make_unique<memory::CachingAllocator>(), &jit::op_program));
    cuda::discover_gpus(
        {.make_allocator = &memory::make_caching_allocator, .expand = &jit::op_program});
    codegen::KernelService& service = codegen::KernelService::instance();
    service.add(std::make_unique<nvrtc::NvrtcCompiler>());
#ifdef MEGJIT_MLIR_PLUGIN
    service.add(std::make_unique<mlir_backend::MlirCompiler>(MEGJIT_MLIR_PLUGIN));
    service.add(std::make_unique<mlir_backend::MlirGpuCompiler>(MEGJIT_MLIR_PLUGIN));
#endif
#ifdef MEGJIT_HALIDE_PLUGIN
    service.add(std::make_unique<halide_backend::HalideCompiler>(MEGJIT_HALIDE_PLUGIN));
    service.add(std::make_unique<halide_backend::HalideGpuCompiler>(MEGJIT_HALIDE_PLUGIN));
#endif
}

}  // namespace megjit::fuzz
