// codegen/loops/frame.h -- what all walks share: the numbers of a launch as values, operands as
// vectors, and the instructions of the program.
#pragma once

#include <span>

#include "codegen/loops/builder.h"
#include "codegen/row_plan.h"

namespace megjit::codegen::loops {

// Up to one vector of elements along the lane axis.
struct Piece {
    Value at;  // index of lane 0, counted from the bases
    Value left = {};  // the first `left` lanes take part, 1..width; null: all
    Value mask = {};  // the lanes that take part; null where `is_whole` decides
    Value is_whole = {};  // b1, in a loop with both kinds: all lanes, whatever `left` says
    Value passes = {};  // b1: whole vectors are stored past the caches; null: they are not
};

class Frame {
public:
    // Declares the parameters of the function.
    Frame(Builder& builder, const KernelIR& kernel, const Target& target);
    // Makes a frame of the same launch with other vectors.
    Frame(const Frame& other, int width, bool is_aligned);

    Value splat(Value scalar) { return b.splat(scalar, width); }
    Value i32_of(Value index) { return b.convert(Kind::i32, index); }

    // ---- operands: inputs, then outputs. A base is an operand's position: a pointer, or the
    // offset of a coordinate ----
    using Elements = std::function<Value(size_t operand)>;
    Values moved(const Values& bases, const Elements& elements);  // a null value moves nothing
    Values along(const Values& bases, int axis, Value steps);  // by steps * stride of the axis
    // Moves the bases of gathered inputs whose index is the same for a whole unit to where it
    // leads.
    Values gathered(Values bases);
    // The index whose row-major number among axes first..last is `number`: the bases there, moved
    // along all these axes but the last, and the coordinate on the last one (null without axes).
    struct Place {
        Values bases;
        Value last;
    };
    Place place_of(const Values& bases, int first, int last, Value number);
    // Bases moved to that index along all axes first..last.
    Values moved_to(const Values& bases, int first, int last, Value number);
    Value product(int first, int last);  // product of their extents

    Piece partial(Value at, Value left);  // the first `left` lanes take part
    Piece either(Value at, Value ahead);  // all lanes take part, or the first `ahead`
    Value mask_of(const Piece& piece);  // null: all lanes
    // Computes instructions `ids` for the elements of a piece; `values` holds what they read, and
    // gets the results.
    void evaluate(std::span<const int> ids, const Values& bases, const Piece& piece,
                  Values& values) {
        evaluate(ids, std::span(&bases, 1), piece, std::span(&values, 1));
    }
    // Evaluates several pieces, instruction by instruction.
    void evaluate(std::span<const int> ids, const Values& bases, std::span<const Piece> pieces,
                  std::span<Values> values);
    // Evaluates the same piece from several bases: all inputs at once, so that one branch serves
    // all.
    void evaluate(std::span<const int> ids, std::span<const Values> bases, const Piece& piece,
                  std::span<Values> values);
    // Evaluates instructions with one value a row; `reduced`: the results of the reductions known
    // by now.
    void evaluate_row(const RowWalk& walk, const Values& bases, const Piece& piece,
                      const Values& reduced, Values& values);
    void store(std::span<const size_t> outputs, const Values& bases, const Piece& piece,
               const Values& values);
    void store_lane0(size_t output, const Values& bases, const Values& values);
    Value base_of_output(const Values& bases_there, int output) const {
        return bases_there[kernel.inputs.size() + static_cast<size_t>(output)];
    }
    // Loads a piece of a row of elements of 32 bits that begins at `row`.
    Value stored(Value row, const Piece& piece);

    // ---- stores past the caches: where a launch writes more than they keep, lines need not be
    // read before they are written ----
    void decide_to_stream();  // sets `streams`; without this call no store goes past them
    // May the outputs be stored so from element `from` on? Null where the launch never does.
    Value passes_caches(std::span<const size_t> outputs, const Values& bases, Value from);
    void end_streams();  // others see what was stored so from here on

    // Walks the reduced axes of a row, with loops over all but the last. `body` goes over the last
    // axis, takes the state and returns the next one; `place` is the number of the run's element 0
    // within the row.
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
    Value lo, hi;  // range of units, on a CPU
    Value block, blocks;  // on a GPU: number of this block, and count of blocks, within the launch
    Value parts, tickets;  // on a GPU whose blocks share rows
    Value streams;  // b1: see decide_to_stream(); null before it
    Values extents;
    Values bases;  // at index 0
    std::vector<Values> strides;  // indexed by [inputs, and with reductions outputs][rank]

private:
    Value launch_of_block(const LaunchTable& table);  // where the launch's words begin
    bool is_unit_index(const Operand& index) const;
    Value lane_stride(size_t i) { return strides[i][static_cast<size_t>(kernel.lane_axis())]; }
    Value lane_offsets(size_t i, const Piece& piece);
    Value jump(size_t i, const Values& bases, Value at);
    Value load(size_t i, const Values& bases, const Piece& piece);
    Value load_lanes(size_t i, Value base, const Piece& piece);
    Value coordinate(size_t i, Value base, const Piece& piece);
    Values load_all(std::span<const size_t> inputs, std::span<const Values> bases,
                    const Piece& piece);
    void store_one(size_t output, const Values& bases, const Piece& piece, Value value,
                   bool past_caches);
    bool is_dense(size_t output) const;
    void take_inputs(std::span<const int> ids, const Values& read, std::span<Values> values);
    Value instruction(int id, const Values& values);
    // These compute `div` and `mod` as scalar.h defines them.
    Value divided_i32(Value a, Value by);  // `by` is neither 0 nor -1
    Value divided_i64(Value a, Value by);
    Value rest_i64(Value a, Value by);
    Values over_axes(int axis, const Run& outer, const Values& state, const RunBody& body);

    Values gather_strides_;  // per input; null where it is not gathered
};

// Orders instructions so that up to `wait` others lie between one and those that read it.
std::vector<int> spread_chains(const runtime::ScalarProgram& program, std::span<const int> ids,
                               int wait);

// Loops over units lo..hi, which are the row-major numbers of the indices of some axes: `body` gets
// the unit, the index on the last axis (null if there are none) and the bases there. Units need no
// division: offsets are carried from one to the next.
struct UnitAxis {
    Value extent;
    Values strides;  // for each operand; null: it does not move
};
using UnitBody = std::function<void(Value unit, Value last, const Values& bases)>;
void for_units(Frame& frame, std::span<const UnitAxis> axes, const UnitBody& body);
std::vector<UnitAxis> kept_axes(const Frame& frame);
void make_blocks(Builder& b, UnitAxis& axis, int64_t size);  // the last block may be smaller
// Calls `body` once for up to `most` neighboring units of the range, which begin at multiples of
// `most` along an axis of that extent: the first unit walks for all of them. `body` gets their
// number.
void for_neighbors(Frame& frame, Value unit, Value number, Value extent, Value most,
                   const std::function<void(Value together)>& body);

// The walks, one for each kind of unit.
void write_elements(Frame& frame);  // no axis is reduced
void write_rows(Frame& frame);  // lanes over the last axis, which is reduced
void write_columns(Frame& frame);  // lanes over the last axis that is kept
void write_tiles(Frame& frame);  // as columns, but several rows at once
void write_panels(Frame& frame);  // as tiles, with packed columns
void write_dots(Frame& frame);  // lanes over the last axis, several rows at once
void write_team_elements(Frame& frame);  // these three are for the threads of a GPU
void write_team_rows(Frame& frame);
void write_team_tiles(Frame& frame);

}  // namespace megjit::codegen::loops
