// backends/mlir/frame.h -- what the walks over elements, rows and columns share: the numbers of a
// launch as SSA values, operands as vectors, and the instructions of the program.
#pragma once

#include <functional>

#include "backends/mlir/emit_scalar.h"

namespace megjit::mlir_backend {

using Values = llvm::SmallVector<mlir::Value>;

// From this many instructions on compiling a body twice costs more than a branch at its loads and
// stores.
constexpr size_t kLongBody = 64;

// Up to one vector of elements along the lane axis.
struct Piece {
    mlir::Value at;  // i64: lane 0, counted from the bases
    mlir::Value left = {};  // i64, 1..width: so many lanes take part; null: all
    mlir::Value mask = {};  // those lanes; null if `is_whole` is there
    mlir::Value is_whole =
        {};  // i1, in a loop that meets both kinds: all lanes take part, whatever `left` says
};

// Per operand, inputs first, as LaunchShape has them.
struct LaunchValues {
    Values extents;
    Values bases;  // pointers; 0 for coordinates
    std::vector<Values> strides;  // of inputs, and with reductions of outputs
    Values gather_strides;  // per input; null where it is not gathered
};

class Frame {
public:
    // `arguments` of the kernel's function: inputs, outputs, extents, strides, lo, hi.
    Frame(mlir::ImplicitLocOpBuilder& builder, const codegen::KernelIR& kernel, VectorTarget target,
          mlir::Block::BlockArgListType arguments);
    void read_operands();  // pointers and strides
    // Of a launch whose numbers are values already; there are no units.
    Frame(mlir::ImplicitLocOpBuilder& builder, const codegen::KernelIR& kernel, VectorTarget target,
          LaunchValues numbers);

    // ---- small words ----
    mlir::Value index(int64_t value);
    mlir::Value add(mlir::Value a, mlir::Value b);
    mlir::Value sub(mlir::Value a, mlir::Value b);
    mlir::Value mul(mlir::Value a, mlir::Value b);
    mlir::Value less(mlir::Value a, mlir::Value b);
    mlir::Value equal(mlir::Value a, mlir::Value b);
    mlir::Value smaller(mlir::Value a, mlir::Value b);  // of the two
    mlir::Value splat(mlir::Value scalar);
    mlir::Value lanes(mlir::Type element);  // 0, 1, 2, ...
    mlir::Value i32_of(mlir::Value wide);

    using Body = std::function<Values(mlir::Value at, const Values& state)>;
    // for (at = from; at < to; at += step) state = body(at, state)
    Values loop(mlir::Value from, mlir::Value to, int64_t step, const Values& start,
                const Body& body);
    void branch(mlir::Value condition, const std::function<void()>& then);
    Values choose(mlir::Value condition, mlir::TypeRange types, const std::function<Values()>& then,
                  const std::function<Values()>& otherwise);

    // ---- operands: inputs, then outputs. A base is where an operand stands: a pointer, or the
    // offset of a coordinate ----
    Values moved(
        const Values& bases,
        const std::function<mlir::Value(size_t operand)>& elements);  // by null: not at all
    Values along(const Values& bases, int axis, mlir::Value steps);  // steps * stride of the axis
    // Gathered inputs whose index is the same for a whole unit, where that index leads.
    Values gathered(Values bases);

    Piece partial(mlir::Value at, mlir::Value left);  // the first `left` lanes
    Piece either(mlir::Value at, mlir::Value ahead);  // all lanes, or the first `ahead`
    mlir::Value mask_of(const Piece& piece);  // null: all lanes
    // Values of instructions `ids` for the elements of a piece; `values` holds what they read.
    void evaluate(llvm::ArrayRef<int> ids, const Values& bases, const Piece& piece,
                  Values& values) {
        evaluate(ids, llvm::ArrayRef<Values>(bases), piece, llvm::MutableArrayRef<Values>(values));
    }
    // The same piece from several bases: of all inputs at once, so that there is one branch for
    // what is whole.
    void evaluate(llvm::ArrayRef<int> ids, llvm::ArrayRef<Values> bases, const Piece& piece,
                  llvm::MutableArrayRef<Values> values);
    void store(llvm::ArrayRef<size_t> outputs, const Values& bases, const Piece& piece,
               const Values& values);
    void store_lane0(size_t output, const Values& bases, const Values& values);
    // What was stored there before, of a contiguous output of 32 bits.
    mlir::Value stored(size_t output, const Values& bases, const Piece& piece);

    // ---- the stack: vectors, by number ----
    mlir::Value room(mlir::VectorType type, int64_t vectors);
    mlir::Value load_from(mlir::Value room, mlir::VectorType type, mlir::Value number);
    void store_to(mlir::Value room, mlir::Value number, mlir::Value lanes);

    mlir::ImplicitLocOpBuilder& b;
    const codegen::KernelIR& kernel;
    const VectorTarget target;
    ScalarEmitter scalars;
    mlir::Type i64, pointer;
    mlir::Value lo, hi;
    Values extents;
    Values bases;  // at index 0
    std::vector<Values> strides;  // [inputs, and with reductions outputs][rank]

private:
    mlir::Value load_number(mlir::Type type, mlir::Value from, size_t position);
    mlir::Value offset_by(mlir::Type element, mlir::Value from, mlir::Value elements);
    const codegen::Operand& operand(size_t i) const;
    bool is_unit_index(const codegen::Operand& index) const;
    mlir::Value lane_stride(size_t i) {
        return strides[i][static_cast<size_t>(kernel.lane_axis())];
    }
    mlir::Value lane_offsets(size_t i, const Piece& piece);
    mlir::Value jump(size_t i, const Values& bases, mlir::Value at);
    mlir::Value load(size_t i, const Values& bases, const Piece& piece);
    mlir::Value load_lanes(size_t i, mlir::Value base, const Piece& piece);
    mlir::Value coordinate(size_t i, mlir::Value base, const Piece& piece);
    mlir::Value gather(size_t i, mlir::Value base, mlir::Value offsets);
    Values load_all(llvm::ArrayRef<size_t> inputs, llvm::ArrayRef<Values> bases,
                    const Piece& piece);
    void store_one(size_t output, const Values& bases, const Piece& piece, mlir::Value value);
    mlir::Value zeros(mlir::VectorType type);
    unsigned vector_alignment(runtime::DType dtype) const;

    mlir::Block::BlockArgListType arguments_;
    Values gather_strides_;  // per input; null where it is not gathered
};

// For units lo..hi, the row-major numbers of the indices of some axes: `body` gets the unit, the
// index of the last of the axes (null if there are none) and the bases there. No unit divides:
// offsets are carried from one to the next.
struct UnitAxis {
    mlir::Value extent;
    Values strides;  // per operand; null: it does not move
};
using UnitBody = std::function<void(mlir::Value unit, mlir::Value last, const Values& bases)>;
void for_units(Frame& frame, llvm::ArrayRef<UnitAxis> axes, const UnitBody& body);

}  // namespace megjit::mlir_backend
