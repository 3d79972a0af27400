// codegen/row_plan.h -- what a kernel with reductions computes at a row, walk by walk, and in which
// order. codegen/loops makes loops of it.
//
// The order fixes the bits of f32 sums. It follows from the kernel and its extents alone, not from
// the width of vectors, the number of threads or the compiler:
//
//   A run is one index of all reduced axes but the last. Its elements have L lanes: kRowLanes
//   where the last axis goes over lanes (Lanes::last), one where columns do (Lanes::kept). Element
//   e of a run belongs to lane e % L, and to group e / (L * kChain).
//   The elements that a lane has in a group are joined one after the other: a chain, in the type of
//   the elements. The lane takes its chains, group by group and run by run; in f64 if it is wide.
//   At last lane j < L/2 takes lane j + L/2, then j < L/4 lane j + L/4, until one is left.
//   A dot has no chains: each lane adds product after product to its f32, rounding once for each.
//   Reductions of f64 have no chains either.
//
// So eight f32 are added before an f64 takes over: sums of any length are right to some 1e-7 of the
// sum of absolute values, at the speed of f32. (GPUs share a row among threads: there a chain is
// what a thread takes next, and lanes are the threads.)
#pragma once

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

constexpr int kRowLanes = 16;
constexpr int kChain = 8;

enum class Join : uint8_t {
    add,
    mul,
    max,  // NaN wins; among equal values the earlier one wins (of two lanes: the lower)
    min,
    first_max,  // (value, place): the first NaN wins, else the better value, else the lower place
    first_min,
};

// One value a lane (for first_max and first_min a value and its i32 place), which starts from a
// neutral one.
struct Accumulator {
    Join join = Join::add;
    ScalarType type = ScalarType::f32;  // type of the elements that it takes; not b1
    bool squares = false;  // takes x * x
    bool wide = false;  // lanes are f64
    bool chains = true;  // if not, the lane takes every element itself, and a wide one as f64
    bool operator==(const Accumulator&) const = default;
    bool has_place() const { return join == Join::first_max || join == Join::first_min; }
    double neutral() const;  // first_max and first_min begin with place 0 as well
};

enum class Finish : uint8_t {
    value,  // the only accumulator's value, rounded to f32 where it is wide
    place,
    mean,  // sum / n, rounded to f32 at the end
    variance,  // squares / n - (sum / n)^2, but at least 0, rounded to f32 at the end
};

// A reduction of the kernel, and how its result comes from accumulators.
struct Reduced {
    int reduction = -1;
    std::vector<int> takes = {};  // instructions: one, or the two factors of a dot
    Finish finish = Finish::value;
    std::vector<Accumulator> accumulators = {};  // for a variance: sum, squares
    bool operator==(const Reduced&) const = default;
};

// One walk over the elements of a row, and what comes before it.
struct RowWalk {
    std::vector<int> row;  // instructions with one value a row, computed before the walk
    std::vector<int> elements;  // instructions that are computed at each element
    std::vector<Reduced> reductions;  // reductions that are complete after the walk
    std::vector<size_t> outputs;  // outputs of elements, which are stored in the walk
    bool walks() const { return !reductions.empty() || !outputs.empty(); }
    bool operator==(const RowWalk&) const = default;
};

struct RowPlan {
    int lanes = 1;
    std::vector<RowWalk>
        walks;  // the last one walks over nothing: it computes the remaining values of rows
    std::vector<size_t> outputs;  // outputs of rows, which are stored at the end
    bool operator==(const RowPlan&) const = default;
};

RowPlan row_plan_of(const KernelIR& kernel);  // for a sound kernel that reduces
// The reduction whose result instruction `id` reads; -1 if it reads none.
int reduction_read_by(const KernelIR& kernel, int id);
std::string print(const RowPlan& plan);
std::string fault_of(const KernelIR& kernel, const RowPlan& plan);  // "" if sound

}  // namespace megjit::codegen
