// backends/halide/abi.h -- what libmegjit_halide.so exports: C functions, text and bytes. No
// exception crosses; Halide stays inside. Every function may be called from any thread.
#pragma once

#include <cstddef>

extern "C" {

// Receives the whole result, or the text of what went wrong, in one call.
typedef void (*megjit_halide_sink)(void* to, const char* data, size_t bytes);

constexpr int kMegjitHalideAbi = 3;
int megjit_halide_abi(void);
// Before anything else: the runtime::Isa that code may use.
void megjit_halide_bound(int isa);

// Halide's version and its target: the CPU and its features.
void megjit_halide_version(megjit_halide_sink sink, void* to);
// The text of a KernelIR to relocatable object code, or to readable Halide IR; 0, or 1 and a text
// of why not.
int megjit_halide_compile(const char* kernel, size_t bytes, megjit_halide_sink sink, void* to);
int megjit_halide_source(const char* kernel, size_t bytes, megjit_halide_sink sink, void* to);
// To PTX for sm_80 and later, with the entry megjit_kernel, for blocks of columns * parts threads
// (emit_gpu.h).
int megjit_halide_ptx(const char* kernel, size_t bytes, int columns, int parts,
                      megjit_halide_sink sink, void* to);

}  // extern "C"
