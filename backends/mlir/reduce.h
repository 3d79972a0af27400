// backends/mlir/reduce.h -- the reductions of one pass as vectors: lane by lane, then over the
// lanes.
//
// A walk is cut into blocks. A block is accumulated into one or several parts, in the type of the
// elements; parts are merged, and each block is absorbed into totals: those of f32 sums, products,
// means and variances are f64, so that long rows keep their digits. Variances by Welford 1962,
// merged as in Chan, Golub and LeVeque 1979 (equations 2.1).
#pragma once

#include "backends/mlir/frame.h"

namespace megjit::mlir_backend {

class Reducer {
public:
    Reducer(Frame& frame, llvm::ArrayRef<int> reductions);

    bool loses_digits() const { return loses_digits_; }  // in long walks: they need blocks
    bool counts() const { return counts_; }  // is it told how many elements a part holds?
    bool needs_places() const { return needs_places_; }
    size_t states() const { return first_.back(); }  // values of a part
    size_t total_states() const {
        return states() + counts_;
    }  // of a total, with f64 lanes of counts at its end

    // Of one vector of elements. A part holds elements lane by lane.
    struct Step {
        mlir::Value mask = {};  // lanes that take part; null: all
        mlir::Value share = {};  // f32 lanes, if it counts: 1 / (elements of the part, with these)
        mlir::Value place = {};  // i32 lanes, if it needs places
    };
    Values start();
    Values step(const Values& part, const Values& values,
                const Step& step);  // `values` per instruction
    // Counts are f32 lanes, if it counts.
    Values merge(const Values& a, mlir::Value count_a, const Values& b, mlir::Value count_b);
    Values start_total();
    Values absorb(const Values& total, const Values& part, mlir::Value count);
    Values fold(Values total);  // over the lanes: every lane of the result holds all
    Values merge_totals(const Values& a, const Values& b);
    Values results(const Values& total,
                   mlir::Value elements);  // per reduction; `elements` (i64) of a row

private:
    const codegen::Reduction& reduction(size_t r) const;
    runtime::ScalarType type_of(size_t r) const { return f_.kernel.program[reduction(r).arg].type; }
    bool is_float(size_t r) const { return type_of(r) == runtime::ScalarType::f32; }
    bool is_wide(size_t r) const;  // is its total f64?

    mlir::Value constant(mlir::Type lanes, double value);
    mlir::Value compare(bool larger, mlir::Value a, mlir::Value b);
    mlir::Value is_nan(mlir::Value a);
    mlir::Value fold_in(size_t r, mlir::Value a, mlir::Value x);  // sum, prod, max, min
    Values better(size_t r, mlir::ArrayRef<mlir::Value> a, mlir::ArrayRef<mlir::Value> b);
    void chan(Values& out, mlir::ArrayRef<mlir::Value> a, mlir::Value count_a,
              mlir::ArrayRef<mlir::Value> b, mlir::Value count_b);
    void merge_one(Values& out, size_t r, const Values& a, mlir::Value count_a, const Values& b,
                   mlir::Value count_b);
    mlir::Value widened(mlir::Value lanes);

    Frame& f_;
    llvm::SmallVector<int> reductions_;
    std::vector<size_t> first_;  // of the states of each reduction; then their number
    bool loses_digits_ = false, counts_ = false, needs_places_ = false;
};

}  // namespace megjit::mlir_backend
