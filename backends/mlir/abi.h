// backends/mlir/abi.h -- what libmegjit_mlir.so exports: C functions, text and bytes. No exception
// crosses; LLVM and MLIR stay inside. Every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Receives the whole result, or the text of an error, in one call.
typedef void (*megjit_mlir_sink)(void* to, const char* data, size_t bytes);

constexpr int kMegjitMlirAbi = 6;
int megjit_mlir_abi(void);
// Sets the runtime::Isa that code may use. To be called before anything else.
void megjit_mlir_bound(int isa);

// LLVM's version, the CPU and a hash of its features.
void megjit_mlir_version(megjit_mlir_sink sink, void* to);
// Compiles the text of a KernelIR to relocatable object code, to readable LLVM IR, or to assembly.
// Returns 0, or 1 with an error text.
int megjit_mlir_compile(const char* kernel, size_t bytes, megjit_mlir_sink sink, void* to);
int megjit_mlir_source(const char* kernel, size_t bytes, megjit_mlir_sink sink, void* to);
int megjit_mlir_assembly(const char* kernel, size_t bytes, megjit_mlir_sink sink, void* to);
// Compiles it to object code for a plain CPU of that runtime::Isa, of either architecture.
int megjit_mlir_object(const char* kernel, size_t bytes, int isa, megjit_mlir_sink sink, void* to);
// Loads object code and returns the address of its kernel; null with an error text.
void* megjit_mlir_load(const char* object, size_t bytes, megjit_mlir_sink sink, void* to);

// The fields of a codegen::GpuPlan, and ten times the compute capability of the GPU.
struct megjit_mlir_gpu {
    int32_t cover, vector, threads, team, tile, rows_lie_along_sum, tensor_cores, joins, arch;
};
// Compiles the text of a legal KernelIR to PTX, or to readable LLVM IR; returns as above.
int megjit_mlir_gpu_compile(const char* kernel, size_t bytes, const megjit_mlir_gpu* gpu,
                            megjit_mlir_sink sink, void* to);
int megjit_mlir_gpu_source(const char* kernel, size_t bytes, const megjit_mlir_gpu* gpu,
                           megjit_mlir_sink sink, void* to);

}  // extern "C"
