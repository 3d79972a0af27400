// backends/mlir/gpu_team.h -- the threads of a block that share a row: a warp, the block, or every
// 32nd thread of it.
#pragma once

#include "backends/mlir/gpu_emit.h"
#include "backends/mlir/reduce.h"

namespace megjit::mlir_backend {

class GpuTeam {
public:
    // `frame` has vectors of one lane.
    GpuTeam(const GpuFrame& gpu, Frame& frame);

    mlir::Value lane() const { return lane_; }  // i64: of this thread in its team
    mlir::Value slot() const { return slot_; }  // i64: of the team in its block
    // Totals of one lane, over the threads of the team. Parts are merged in the order of their
    // threads: all get the same bits.
    Values merged(Reducer& reducer, const Values& total);
    void barrier();  // what the team has read may be written behind it

private:
    bool is_warp() const { return gpu_.plan.cover == codegen::Cover::rows && gpu_.plan.team == 32; }
    Values over_warp(Reducer& reducer, Values total);
    Values over_block(Reducer& reducer, const Values& total);
    Values over_columns(Reducer& reducer, Values total);

    mlir::Value number(int64_t value) { return f_.index(value); }
    mlir::Value from_lane(mlir::Value state,
                          int32_t mask);  // of the lane whose number differs in `mask`
    mlir::Value word_from_lane(mlir::Value word, int32_t mask);
    mlir::Value place_in_scratch(size_t state, mlir::Value index);
    void put(const Values& states, mlir::Value index);
    Values get(const Values& like, mlir::Value index);
    Values select(mlir::Value condition, const Values& a, const Values& b);

    const GpuFrame& gpu_;
    Frame& f_;
    mlir::ImplicitLocOpBuilder& b_;
    mlir::Value lane_, slot_, scratch_;
};

}  // namespace megjit::mlir_backend
