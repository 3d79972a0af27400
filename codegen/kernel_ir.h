// codegen/ -- small kernels as data, and their compilers.
// In: a scalar program over an iteration space. Out: a KernelFn that any host thread can call.
// Knows runtime/ only; never a device, a graph or a backend.
//
// codegen/kernel_ir.h -- KernelIR is the structure of a kernel, LaunchShape its numbers: one compiled
// kernel serves every size, so that all parameters of a model share one optimizer kernel.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/op.h"
#include "runtime/scalar.h"

namespace megjit::codegen {

using runtime::DType;

// How an operand moves along the innermost axis. Outer axes always go by run-time strides.
enum class Inner : uint8_t {
    contiguous,  // stride 1
    broadcast,   // stride 0: one element per row
    strided,     // any other stride
};

struct Operand {
    DType dtype = DType::f32;
    Inner inner = Inner::contiguous;
    bool operator==(const Operand&) const = default;
};

// for every index of the iteration space: outputs[k][index] = results[k](inputs[...][index]).
// `input i` of the program reads inputs[i], already widened to its compute type; what is stored is
// already narrowed by the program. Outputs are contiguous in the iteration space (row-major) and may
// lie exactly on an input that has the same access.
struct KernelIR {
    int rank = 1;  // axes of the iteration space after collapsing, 1..kMaxRank
    std::vector<Operand> inputs;
    std::vector<DType> outputs;
    runtime::ScalarProgram program;
    std::vector<int> results;  // per output: id in the program
    bool operator==(const KernelIR&) const = default;
};

struct LaunchShape {
    std::vector<int64_t> extents;  // [rank], outermost first
    std::vector<int64_t> strides;  // [inputs][rank], in elements; outputs are row-major
    int64_t numel() const;
    int64_t rows() const;  // product of all extents but the innermost
};

// Rank 1: elements lo..hi. Rank > 1: rows lo..hi, a row being one run of the innermost axis.
// Reentrant, allocates nothing, throws nothing.
using KernelFn = void (*)(void* const* inputs, void* const* outputs, const int64_t* extents,
                          const int64_t* strides, int64_t lo, int64_t hi);

// Text form; print and parse are inverses. It is also what crosses into a compiler plug-in and what
// the cache is keyed by:
//   kernel rank=1
//   in f32 contiguous
//   in f32 broadcast
//   %0: f32 = input 0
//   %1: f32 = input 1
//   %2: f32 = mul %0 %1
//   out f32 %2
std::string print(const KernelIR& kernel);
KernelIR parse_kernel(std::string_view text);  // UserError with the line on a fault
std::string fault_of(const KernelIR& kernel);  // the verifier; "" if sound

// The kernel of one element-wise application: broadcasting resolved to strides, axes that every
// operand walks alike collapsed.
struct BoundKernel {
    KernelIR kernel;
    LaunchShape launch;
};
// Every input is broadcast to `space`, which is the shape of all outputs; `layout` is that of the
// outputs, and the order in which the space is walked.
BoundKernel bind(runtime::ScalarProgram program, std::vector<int> results, std::vector<DType> outputs,
                 const runtime::Shape& space, std::span<const runtime::Type> inputs,
                 runtime::Layout layout = runtime::Layout::row_major);
BoundKernel elementwise_kernel(const runtime::OpCall& call, const runtime::Type& output);

// The oracle: obvious, slow, double precision libm for transcendental functions.
void interpret(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs, void* const* outputs);

}  // namespace megjit::codegen
