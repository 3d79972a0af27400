// tests/fuzz/backends.h -- the ops, the CPU device and the compilers of this build, made once for a
// program.
#pragma once

#include "backends/cpu/cpu_device.h"
#include "codegen/compiler.h"
#include "memory/caching_allocator.h"
#include "runtime/op.h"
#ifdef MEGJIT_MLIR_PLUGIN
#include "backends/mlir/loader.h"
#endif
#ifdef MEGJIT_HALIDE_PLUGIN
#include "backends/halide/loader.h"
#endif

namespace megjit::fuzz {

inline void start_backends() {
    runtime::register_all_ops();
    runtime::register_device(
        std::make_unique<cpu::CpuDevice>(std::make_unique<memory::CachingAllocator>()));
#ifdef MEGJIT_MLIR_PLUGIN
    codegen::KernelService::instance().add(
        std::make_unique<mlir_backend::MlirCompiler>(MEGJIT_MLIR_PLUGIN));
#endif
#ifdef MEGJIT_HALIDE_PLUGIN
    codegen::KernelService::instance().add(
        std::make_unique<halide_backend::HalideCompiler>(MEGJIT_HALIDE_PLUGIN));
#endif
}

}  // namespace megjit::fuzz
