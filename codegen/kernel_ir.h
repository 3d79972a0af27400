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

// How an operand moves along the axis that lanes walk. Strides along all other axes are known at
// run time only.
enum class Inner : uint8_t {
    contiguous,  // stride 1
    broadcast,  // stride 0: one element for all lanes
    strided,  // any other stride
    transposed,  // any other stride, but 1 along the last axis, which is reduced (Lanes::panels)
};

// An operand of the kernel: its element at an index lies at the sum of index * stride.
struct Operand {
    DType dtype = DType::f32;
    Inner inner = Inner::contiguous;
    bool per_row = false;  // all indices of the reduced axes have the same element: one value a row
    // These are for inputs only, and at most one is set:
    int by = -1;  // gathered: value of input `by` (i32, checked, >= 0) * gather stride is added to
                  // the offset
    bool is_offset = false;  // the input is a coordinate: nothing is read, the value is the offset
                             // itself (i32). Such inputs come last, and have no pointer
    bool repeats =
        false;  // for a contraction: all indices of the kept axis that lanes do not walk have the
                // same element (Lanes::last: the last kept axis; else the last but one)
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

// Which axis the lanes of a vector walk: the last one, or the last kept one. A row is what one
// index of the kept axes sees.
enum class Lanes : uint8_t {
    last,
    kept,
    tiles,  // as kept; neighboring indices of the axis before that one share what they read
    panels,  // as tiles; what is shared is computed once and stored, whatever its strides
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
    int reduced = 0;  // how many of these are reduced; they come last
    Lanes lanes = Lanes::last;
    std::vector<Operand> inputs;
    std::vector<Operand> outputs;
    runtime::ScalarProgram program;
    std::vector<Reduction> reductions;
    std::vector<int> results;  // for each output: the value's id in the program
    bool operator==(const KernelIR&) const = default;

    int kept() const { return rank - reduced; }
    int lane_axis() const { return lanes == Lanes::last ? rank - 1 : kept() - 1; }
    // When the value of an instruction is known. The elements of a row are walked once or several
    // times: pass 0, 1, ...; a reduction is complete after the pass in which its argument is first
    // known, and its readers are known one pass later.
    struct Level {
        int pass = 0;
        bool per_row = false;  // one value a row, known before pass `pass` begins (else: known in
                               // `pass` and in later ones)
    };
    std::vector<Level> levels() const;
    int passes() const;  // number of walks for all reductions and outputs of elements
    ScalarType type_of(const Reduction& reduction) const;  // type of the reduction's result
};

size_t memory_inputs(const KernelIR& kernel);  // all inputs but offsets

struct LaunchShape {
    std::vector<int64_t> extents;  // [rank], outermost first
    std::vector<int64_t> strides;  // [inputs + outputs][rank], in elements; then one stride for
                                   // each gathered input, in their order
    bool joins = false;  // this is one of several launches of a kernel, which a GPU may run as one
    int64_t numel() const;
    int64_t rows() const;  // product of all extents but the innermost
};

// What a kernel is launched over, in units that threads share among them:
//   element-wise of rank 1: elements
//   element-wise: rows of the innermost axis
//   lanes last: indices of the kept axes; if rows are dots, blocks of kDotRows indices of the last
//     of these axes
//   lanes kept: blocks of kColumnBlock indices of the last kept axis, the last of each run smaller
//   tiles, panels: such blocks, of kTileRows or kPanelRows indices of the axis before it
constexpr int64_t kColumnBlock = 64, kTileRows = 32, kPanelRows = 64, kDotRows = 8;
constexpr int64_t rows_of_tile(Lanes lanes) {
    return lanes == Lanes::panels ? kPanelRows : kTileRows;
}
int64_t units(const KernelIR& kernel, const LaunchShape& launch);

// May output `out` lie exactly on input `in`? Only if no element is read after it is written.
bool may_lie_on(const KernelIR& kernel, const LaunchShape& launch, int out, int in);
// Answers the same for several launches, whose operands follow each other.
bool may_lie_on(const KernelIR& kernel, std::span<const LaunchShape> launches, int out, int in);

// Is the kernel element-wise, with plain operands? Then a device can run its scalar program without
// generated code.
bool runs_without_code(const KernelIR& kernel);

// Computes units lo..hi. Reentrant, allocates nothing, throws nothing.
using KernelFn = void (*)(void* const* inputs, void* const* outputs, const int64_t* extents,
                          const int64_t* strides, int64_t lo, int64_t hi);

// The text form; print and parse are inverses. Compiler plug-ins get a kernel as this text, and the
// cache has it as the key:
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
std::string fault_of(const KernelIR& kernel);  // by the verifier; "" if sound

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
        bool is_scalar = false;  // a number, not a tensor of one element: it stays broadcast even
                                 // in a space of one element
    };
    std::vector<int64_t> extents;  // [kept..., reduced...]
    int reduced = 0;
    std::vector<Access> inputs, outputs;
    runtime::ScalarProgram program;
    std::vector<Reduction> reductions;
    std::vector<int> results;
    bool packs = false;  // Lanes::panels is for a contraction, where its operands allow it
};
// Merges axes that every operand walks alike, and chooses the lane axis: the one along which the
// most bytes lie side by side.
BoundKernel bind(KernelSpec spec);

// Binds an element-wise program: every input is broadcast to `space`, which is the shape of all
// outputs; they have `layout`, in whose order the space is walked.
BoundKernel bind(runtime::ScalarProgram program, std::vector<int> results,
                 std::vector<DType> outputs, const runtime::Shape& space,
                 std::span<const runtime::Type> inputs,
                 runtime::Layout layout = runtime::Layout::row_major);
// The kernel of one element-wise application.
BoundKernel elementwise_kernel(const runtime::OpCall& call, const runtime::Type& output);

// The oracle, which is obvious and slow: it uses double precision libm for transcendental
// functions, and sums in the order of row_plan.h.
void interpret(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs,
               void* const* outputs);

}  // namespace megjit::codegen
