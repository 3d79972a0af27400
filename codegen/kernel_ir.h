// codegen/ -- small kernels as data, and their compilers.
// In: a scalar program over an iteration space. Out: a KernelFn that any host thread can call, or
// an image for a GPU. Knows runtime/ only; never a device, a graph or a backend.
//
// codegen/kernel_ir.h -- KernelIR is the structure of a kernel, LaunchShape its numbers: one
// compiled kernel serves every size, so that all parameters of a model share one optimizer kernel.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/device.h"
#include "runtime/core/op.h"
#include "runtime/core/scalar.h"

namespace megjit::codegen {

using runtime::DType;
using runtime::Reduce;
using runtime::ScalarType;

// How an operand moves along the axis that lanes walk. All other axes go by run-time strides.
enum class Inner : uint8_t {
    contiguous,  // stride 1
    broadcast,  // stride 0: one element for all lanes
    strided,  // any other stride
    transposed,  // any other stride, but 1 along the last axis, which is reduced (Lanes::panels)
};

// An operand of the kernel: the element at an index is the one at the sum of index * stride.
struct Operand {
    DType dtype = DType::f32;
    Inner inner = Inner::contiguous;
    bool per_row = false;  // the same for all indices of the reduced axes: one value a row
    // Inputs only, at most one of the two:
    int by = -1;  // gathered: value of input `by` (i32, checked, >= 0) * gather stride is added to
                  // the offset
    bool is_offset = false;  // nothing is read: the value is the offset itself (i32), a coordinate.
                             // Such inputs come last, and have no pointer
    bool repeats =
        false;  // an operand of a contraction is the same for all indices of the kept
                // axis that lanes do not walk (Lanes::last: the last; else the last but one)
    bool operator==(const Operand&) const = default;
};

std::string_view name_of(Reduce kind);

// One value a row: `kind` over the value `arg` at all indices of the reduced axes, in the order of
// row_plan.h.
struct Reduction {
    Reduce kind = Reduce::sum;
    int arg = -1;  // id in the program
    bool operator==(const Reduction&) const = default;
};

// Which axis goes over the lanes of a vector: the last one, or the last that is kept. A row is what
// one index of the kept axes sees.
enum class Lanes : uint8_t {
    last,
    kept,
    tiles,  // as kept, and neighboring indices of the axis before that one share what they read
    panels,  // as tiles, and what they share is computed once and kept, whatever way it lies
};

// The iteration space is [kept axes..., reduced axes...], row-major. Element-wise kernels reduce
// none:
//   for every index: outputs[k][index] = results[k](inputs[...][index]).
// With reductions, for every index of the kept axes: reduction 0, then 1, ... (each may read those
// before it), then the outputs: at every index, or once a row where the output is per_row. `input
// i` of the program reads inputs[i], already widened to its compute type; `input n + r`, where n is
// the number of inputs, reads reduction r. What is stored is already narrowed by the program.
// Element-wise outputs are row-major. All inputs of an element are read before its outputs are
// written.
struct KernelIR {
    int rank = 1;  // axes of the iteration space after collapsing, 1..kMaxRank
    int reduced = 0;  // how many of them, the last ones, are reduced
    Lanes lanes = Lanes::last;
    std::vector<Operand> inputs;
    std::vector<Operand> outputs;
    runtime::ScalarProgram program;
    std::vector<Reduction> reductions;
    std::vector<int> results;  // per output: id in the program
    bool operator==(const KernelIR&) const = default;

    int kept() const { return rank - reduced; }
    int lane_axis() const { return lanes == Lanes::last ? rank - 1 : kept() - 1; }
    // Per instruction, when its value is known. The elements of a row are walked once or several
    // times: pass 0, 1, ...; a reduction is complete after the pass in which its argument is known
    // first, and what reads it is known one pass later.
    struct Level {
        int pass = 0;
        bool per_row = false;  // one value a row, known before pass `pass` begins (else: in it and
                               // in later ones)
    };
    std::vector<Level> levels() const;
    int passes() const;  // how many walks all reductions and outputs of elements need
    ScalarType type_of(const Reduction& reduction) const;  // of the value that it gives
};

size_t memory_inputs(const KernelIR& kernel);  // all but offsets

struct LaunchShape {
    std::vector<int64_t> extents;  // [rank], outermost first
    std::vector<int64_t> strides;  // [inputs + outputs][rank], in elements; then one for each
                                   // gathered input, in their order
    bool joins = false;  // one of several launches of its kernel, which a GPU may run as one
    int64_t numel() const;
    int64_t rows() const;  // product of all extents but the innermost
};

// What a kernel is launched over, in units that threads share among them:
//   element-wise of rank 1: elements
//   element-wise: rows of the innermost axis
//   lanes last: indices of the kept axes; of rows that are dots, blocks of kDotRows indices of the
//     last of these
//   lanes kept: blocks of kColumnBlock indices of the last kept axis, the last of each run smaller
//   tiles, panels: such blocks, of kTileRows or kPanelRows indices of the axis before it
constexpr int64_t kColumnBlock = 64, kTileRows = 32, kPanelRows = 64, kDotRows = 8;
constexpr int64_t rows_of_tile(Lanes lanes) {
    return lanes == Lanes::panels ? kPanelRows : kTileRows;
}
int64_t units(const KernelIR& kernel, const LaunchShape& launch);

// May output `out` lie exactly on input `in`? Each element must be read for the last time where it
// is written.
bool may_lie_on(const KernelIR& kernel, const LaunchShape& launch, int out, int in);
// Asks the same where the operands of all launches follow each other.
bool may_lie_on(const KernelIR& kernel, std::span<const LaunchShape> launches, int out, int in);

// Element-wise, of plain operands: a device can run its scalar program without generated code.
bool runs_without_code(const KernelIR& kernel);

// Units lo..hi. Reentrant, allocates nothing, throws nothing.
using KernelFn = void (*)(void* const* inputs, void* const* outputs, const int64_t* extents,
                          const int64_t* strides, int64_t lo, int64_t hi);

// Text form; print and parse are inverses. It is also what crosses into a compiler plug-in and what
// the cache is keyed by:
//   kernel rank=2 reduced=1 lanes=last
//   in f32 contiguous
//   in f32 contiguous by 2
//   in i32 broadcast row
//   %0: f32 = input 0
//   %1: f32 = input 3
//   %2: f32 = sub %0 %1
//   reduce max %0
//   out f32 %2
std::string print(const KernelIR& kernel);
KernelIR parse_kernel(std::string_view text);  // UserError with the line on a fault
std::string fault_of(const KernelIR& kernel);  // the verifier; "" if sound

// A kernel with its numbers.
struct BoundKernel {
    KernelIR kernel;
    LaunchShape launch;
};

// A kernel before its axes are collapsed. Strides are per axis of `extents`; 0 where the operand
// does not move.
struct KernelSpec {
    struct Access {
        DType dtype = DType::f32;
        std::vector<int64_t> strides = {};
        int by = -1;
        int64_t gather_stride = 0;
        bool is_offset = false;
        bool is_scalar = false;  // no tensor of one element but a number: stays broadcast in a
                                 // space of one element
    };
    std::vector<int64_t> extents;  // [kept..., reduced...]
    int reduced = 0;
    std::vector<Access> inputs, outputs;
    runtime::ScalarProgram program;
    std::vector<Reduction> reductions;
    std::vector<int> results;
    bool packs = false;  // of a contraction: by Lanes::panels, where its operands allow that
};
// Merges axes that every operand walks alike, and chooses the lane axis: the one along which the
// most bytes lie side by side.
BoundKernel bind(KernelSpec spec);

// Element-wise: every input is broadcast to `space`, which is the shape of all outputs; `layout` is
// that of the outputs, and the order in which the space is walked.
BoundKernel bind(runtime::ScalarProgram program, std::vector<int> results,
                 std::vector<DType> outputs, const runtime::Shape& space,
                 std::span<const runtime::Type> inputs,
                 runtime::Layout layout = runtime::Layout::row_major);
// The kernel of one element-wise application.
BoundKernel elementwise_kernel(const runtime::OpCall& call, const runtime::Type& output);

// The oracle: obvious, slow, double precision libm for transcendental functions, sums in the order
// of row_plan.h.
void interpret(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs,
               void* const* outputs);

}  // namespace megjit::codegen
