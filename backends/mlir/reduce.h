// backends/mlir/reduce.h -- the accumulators of codegen/row_plan.h as vectors: chains and lanes.
#pragma once

#include "backends/mlir/frame.h"
#include "codegen/row_plan.h"

namespace megjit::mlir_backend {

// Of some reductions of a walk. Chains and lanes are the values of all accumulators, one after the
// other: a value, and where it has one a place.
class Reducer {
public:
    Reducer(Frame& frame, llvm::ArrayRef<codegen::Reduced> reductions);

    bool needs_places() const;
    size_t chain_values() const { return chain_values_; }
    size_t lane_values() const { return lane_values_; }
    Values start_chains();  // empty where nothing chains
    Values start_lanes();

    // One vector of elements: `values` per instruction.
    struct Step {
        mlir::Value mask = {};  // lanes that take part; null: all
        mlir::Value place = {};  // i32 lanes, if it needs places
    };
    void take(Values& chains, Values& lanes, const Values& values, const Step& step);
    Values with_chains(const Values& lanes, const Values& chains);  // which lie behind
    Values merged(const Values& a, const Values& b);  // lanes, of any places
    // One vector after the other holds the lanes of a row: every lane of the result holds all.
    Values folded(std::vector<Values> vectors);
    // Per reduction; `elements` (i64) of a row.
    Values results(const Values& lanes, mlir::Value elements);

private:
    // Where the values of an accumulator lie.
    struct Slot {
        codegen::Accumulator by;
        size_t reduction = 0;
        size_t lane = 0;  // the first of its values
        size_t chain = 0;  // likewise, if it chains
        size_t values = 1;
    };
    mlir::Value constant(mlir::Type element, double value);
    Values start(bool lanes);
    mlir::Value is_nan(mlir::Value a);
    mlir::Value compare(bool larger, mlir::Value a, mlir::Value b);
    mlir::Value taken(const Slot& slot, const Values& values);
    mlir::Value widened(const Slot& slot, mlir::Value value);
    // `b` lies behind a, or at any place.
    void join(const Slot& slot, mlir::Value* a, llvm::ArrayRef<mlir::Value> b, bool is_behind);
    mlir::Value better(bool larger, mlir::Value a, mlir::Value b);
    mlir::Value wins(bool larger, mlir::ArrayRef<mlir::Value> a, llvm::ArrayRef<mlir::Value> b,
                     bool is_behind);

    Frame& f_;
    llvm::SmallVector<codegen::Reduced> reductions_;
    std::vector<Slot> slots_;
    size_t lane_values_ = 0, chain_values_ = 0;
};

}  // namespace megjit::mlir_backend
