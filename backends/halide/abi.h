// backends/halide/abi.h -- what libmegjit_halide.so exports: C functions, text and bytes. No
// exception crosses; Halide stays inside. Every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Receives the whole result, or the text of what went wrong, in one call.
typedef void (*megjit_halide_sink)(void* to, const char* data, size_t bytes);

constexpr int kMegjitHalideAbi = 5;
int megjit_halide_abi(void);
// Before anything else: the runtime::Isa that code may use.
void megjit_halide_bound(int isa);

// Halide's version and its target: the CPU and its features.
void megjit_halide_version(megjit_halide_sink sink, void* to);
// The text of a KernelIR to relocatable object code, or to readable Halide IR; 0, or 1 and a text
// of why not.
int megjit_halide_compile(const char* kernel, size_t bytes, megjit_halide_sink sink, void* to);
int megjit_halide_source(const char* kernel, size_t bytes, megjit_halide_sink sink, void* to);
// codegen::GpuPlan.
struct megjit_halide_gpu {
    int32_t cover, threads, team, tile, rows_lie_along_sum;
};
// To PTX for sm_80 and later, with the entry megjit_kernel.
int megjit_halide_ptx(const char* kernel, size_t bytes, const megjit_halide_gpu* gpu,
                      megjit_halide_sink sink, void* to);

}  // extern "C"
