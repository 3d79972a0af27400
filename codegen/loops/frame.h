// codegen/loops/frame.h -- what all walks share: the numbers of a launch as values, operands as
// vectors, and the instructions of the program.
#pragma once

#include <span>

#include "codegen/loops/builder.h"
#include "codegen/row_plan.h"

namespace megjit::codegen::loops {

// Up to one vector of elements along the lane axis.
struct Piece {
    Value at;  // lane 0, counted from the bases
    Value left = {};  // 1..width: so many lanes take part; null: all
    Value mask = {};  // those lanes; null where `is_whole` decides
    Value is_whole = {};  // b1, in a loop that meets both kinds: all lanes, whatever `left` says
};

class Frame {
public:
    // Declares the parameters of the function.
    Frame(Builder& builder, const KernelIR& kernel, const Target& target);
    // Makes a frame of the same launch with other vectors.
    Frame(const Frame& other, int width, bool is_aligned);

    Value splat(Value scalar) { return b.splat(scalar, width); }
    Value i32_of(Value index) { return b.convert(Kind::i32, index); }

    // ---- operands: inputs, then outputs. A base is where an operand stands: a pointer, or the
    // offset of a coordinate ----
    using Elements = std::function<Value(size_t operand)>;
    Values moved(const Values& bases, const Elements& elements);  // by null: not at all
    Values along(const Values& bases, int axis, Value steps);  // steps * stride of the axis
    // Gathered inputs whose index is the same for a whole unit, where that index leads.
    Values gathered(Values bases);
    // The index whose row-major number among axes first..last is `number`: bases there along all
    // these axes but the last one, and the coordinate on that one (null without axes).
    struct Place {
        Values bases;
        Value last;
    };
    Place place_of(const Values& bases, int first, int last, Value number);
    // Bases at that index of all axes first..last.
    Values moved_to(const Values& bases, int first, int last, Value number);
    Value product(int first, int last);  // of extents

    Piece partial(Value at, Value left);  // the first `left` lanes
    Piece either(Value at, Value ahead);  // all lanes, or the first `ahead`
    Value mask_of(const Piece& piece);  // null: all lanes
    // Values of instructions `ids` for the elements of a piece; `values` holds what they read.
    void evaluate(std::span<const int> ids, const Values& bases, const Piece& piece,
                  Values& values) {
        evaluate(ids, std::span(&bases, 1), piece, std::span(&values, 1));
    }
    // Evaluates the same piece from several bases: all inputs at once, so that one branch serves
    // all.
    void evaluate(std::span<const int> ids, std::span<const Values> bases, const Piece& piece,
                  std::span<Values> values);
    // Evaluates instructions with one value a row; `reduced`: per reduction, those known by now.
    void evaluate_row(const RowWalk& walk, const Values& bases, const Piece& piece,
                      const Values& reduced, Values& values);
    void store(std::span<const size_t> outputs, const Values& bases, const Piece& piece,
               const Values& values);
    void store_lane0(size_t output, const Values& bases, const Values& values);
    // What was stored there before, of a contiguous output of 32 bits.
    Value stored(size_t output, const Values& bases, const Piece& piece);

    // The reduced axes of a row, all but the last by loops. `body` goes over the last one, takes
    // the state and gives the next; `place` is the number of the run's element 0 within the row.
    struct Run {
        Values bases;
        Value place, length;
    };
    using RunBody = std::function<Values(const Run& run, const Values& state)>;
    Values for_runs(const Values& bases, const Values& state, const RunBody& body);
    Value row_elements() { return product(kernel.kept(), kernel.rank); }

    Builder& b;
    const KernelIR& kernel;
    const Target& target;
    const int width;
    const bool is_aligned;  // contiguous vectors begin at multiples of their size
    Value lo, hi;  // units, on a CPU
    Value block, blocks;  // on a GPU: of this launch
    Value parts, tickets;  // on a GPU whose blocks share rows
    Values extents;
    Values bases;  // at index 0
    std::vector<Values> strides;  // [inputs, and with reductions outputs][rank]

private:
    Value launch_of_block(const LaunchTable& table);  // where its words begin
    bool is_unit_index(const Operand& index) const;
    Value lane_stride(size_t i) { return strides[i][static_cast<size_t>(kernel.lane_axis())]; }
    Value lane_offsets(size_t i, const Piece& piece);
    Value jump(size_t i, const Values& bases, Value at);
    Value load(size_t i, const Values& bases, const Piece& piece);
    Value load_lanes(size_t i, Value base, const Piece& piece);
    Value coordinate(size_t i, Value base, const Piece& piece);
    Values load_all(std::span<const size_t> inputs, std::span<const Values> bases,
                    const Piece& piece);
    void store_one(size_t output, const Values& bases, const Piece& piece, Value value);
    Value instruction(int id, const Values& values);
    // These compute what `div` and `mod` of scalar.h say.
    Value divided_i32(Value a, Value by);  // by: neither 0 nor -1
    Value divided_i64(Value a, Value by);
    Value rest_i64(Value a, Value by);
    Values over_axes(int axis, const Run& outer, const Values& state, const RunBody& body);

    Values gather_strides_;  // per input; null where it is not gathered
};

// For units lo..hi, the row-major numbers of the indices of some axes: `body` gets the unit, the
// index of the last of the axes (null if there are none) and the bases there. No unit divides:
// offsets are carried from one to the next.
struct UnitAxis {
    Value extent;
    Values strides;  // per operand; null: it does not move
};
using UnitBody = std::function<void(Value unit, Value last, const Values& bases)>;
void for_units(Frame& frame, std::span<const UnitAxis> axes, const UnitBody& body);
std::vector<UnitAxis> kept_axes(const Frame& frame);
void make_blocks(Builder& b, UnitAxis& axis, int64_t size);  // of so many indices, the last smaller
// Calls `body` for neighboring units along an axis of that extent, up to `most` and aligned to
// that: the first that this range has walks for all. `body` gets their number.
void for_neighbors(Frame& frame, Value unit, Value number, Value extent, Value most,
                   const std::function<void(Value together)>& body);

// The walks, one for each kind of unit.
void write_elements(Frame& frame);  // no axis is reduced
void write_rows(Frame& frame);  // lanes over the last axis, which is reduced
void write_columns(Frame& frame);  // lanes over the last axis that is kept
void write_tiles(Frame& frame);  // likewise, several rows at once
void write_panels(Frame& frame);  // likewise, of columns that are packed
void write_dots(Frame& frame);  // lanes over the last axis, several rows at once
void write_team_elements(Frame& frame);  // threads of a GPU
void write_team_rows(Frame& frame);
void write_team_tiles(Frame& frame);

}  // namespace megjit::codegen::loops
