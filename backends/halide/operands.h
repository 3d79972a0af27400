// backends/halide/operands.h -- where the elements of a kernel's operands lie, and how they are
// read and written.
#pragma once

#include "backends/halide/code.h"
#include "codegen/kernel_ir.h"

namespace megjit::halide_backend {

// `lanes` neighbours on the lane axis: elements at, at + 1, ...; all of them or the first `left`.
struct Piece {
    Expr at;  // i64
    int lanes = 1;
    Expr left = {};  // i32, 1..lanes; undefined: all
    Expr mask = {};  // defined with `left`: the lanes that are there
};
// The first `left` of `lanes` elements; left is i32.
Piece partial(Code& code, const Expr& at, int lanes, const Expr& left);

// Per operand, inputs first, its offset in elements (i64) at an index whose coordinate on the lane
// axis is 0.
using Bases = std::vector<Expr>;

// All memory is one array to Halide, named "memory", whose start is a let around each access:
// arrays of different names may not overlap, but an output may lie on an input. Offsets have 64
// bits.
class Operands {
public:
    // The arguments of a kernel: addresses of inputs and outputs; extents and strides (i64).
    struct Arguments {
        std::function<Expr(size_t)> input, output, extent, stride;
    };
    static Arguments of_kernel_fn();  // read from a KernelFn's arrays
    Operands(const codegen::KernelIR& kernel, Code& code, const Arguments& arguments);

    // The bases at number `index` (i64) of the first `axes` axes, row-major.
    Bases at_position(Code& code, Expr index, int axes) const;
    const Expr& extent(int axis) const { return extents_[static_cast<size_t>(axis)]; }
    Bases start() const;
    // One coordinate further in: `index` (i64) on `axis`.
    Bases moved(Code& code, const Bases& bases, int axis, const Expr& index) const;

    // Input i in its compute type: one value where it is the same in all lanes, else one a lane.
    Expr load(Code& code, size_t i, const Bases& bases, const Piece& piece) const;
    void store(Code& code, size_t k, const Bases& bases, const Piece& piece,
               const Expr& value) const;

private:
    Expr stride(size_t operand, int axis) const {
        return strides_[operand * static_cast<size_t>(kernel_.rank) + static_cast<size_t>(axis)];
    }
    Expr lane_offsets(const codegen::Operand& operand, size_t number, const Expr& base,
                      const Piece& piece, bool in_bounds) const;

    const codegen::KernelIR& kernel_;
    std::vector<Expr> extents_, strides_, gather_strides_;  // i64
    std::vector<Expr> pointers_;  // inputs in memory, then outputs; undefined for offsets
};

}  // namespace megjit::halide_backend
