// codegen/host_cpu.h -- the CPU as the keys of cached kernels name it.
#pragma once

#include <string>
#include <string_view>

namespace megjit::codegen {

// The architecture and what it has of all that a compiler may use: "x86-64 avx avx2 fma". Under a
// bound by MEGJIT_ISA, what x86-64-v3 or -v4 has: that is what compilers then make code for.
const std::string& host_features();
// Its maker's name, family, model and brand: CPUs that differ in speed differ in it.
const std::string& cpu_model();
// May code that was made for `features` run here?
bool runs_here(std::string_view features);

}  // namespace megjit::codegen
