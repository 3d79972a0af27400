// backends/halide/abi.h -- what libmegjit_halide.so exports: C functions, text and bytes. No
// exception crosses; Halide stays inside. Every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Receives the whole result, or the text of an error, in one call.
typedef void (*megjit_halide_sink)(void* to, const char* data, size_t bytes);

constexpr int kMegjitHalideAbi = 5;
int megjit_halide_abi(void);
// Sets the runtime::Isa that code may use. To be called before anything else.
void megjit_halide_bound(int isa);

// Halide's version and its target: the CPU and its features.
void megjit_halide_version(megjit_halide_sink sink, void* to);
// Compiles the text of a KernelIR to relocatable object code, or to readable Halide IR. Returns 0,
// or 1 with an error text.
int megjit_halide_compile(const char* kernel, size_t bytes, megjit_halide_sink sink, void* to);
int megjit_halide_source(const char* kernel, size_t bytes, megjit_halide_sink sink, void* to);
// The fields of a codegen::GpuPlan.
struct megjit_halide_gpu {
    int32_t cover, threads, team, tile, rows_lie_along_sum;
};
// Compiles to PTX for sm_80 and later, with the entry megjit_kernel.
int megjit_halide_ptx(const char* kernel, size_t bytes, const megjit_halide_gpu* gpu,
                      megjit_halide_sink sink, void* to);

}  // extern "C"
