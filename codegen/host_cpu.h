// codegen/host_cpu.h -- the CPU as the keys of cached kernels name it.
#pragma once

#include <string>
#include <string_view>

namespace megjit::codegen {

// The architecture and those of its features that a compiler may use: "x86-64 avx avx2 fma". Under
// a bound by MEGJIT_ISA, the features of x86-64-v3 or -v4: compilers then make code for these.
const std::string& host_features();
// The CPU's maker, family, model and brand: CPUs of different speed have different texts.
const std::string& cpu_model();
// May code that was made for `features` run here?
bool runs_here(std::string_view features);

}  // namespace megjit::codegen
