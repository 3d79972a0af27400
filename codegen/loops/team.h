// codegen/loops/team.h -- Team: the threads of a GPU's block that share a row: a warp, the block,
// or every 32nd thread of it; and the blocks that share one.
#pragma once

#include "codegen/loops/reducer.h"

namespace megjit::codegen::loops {

class Team {
public:
    explicit Team(Frame& frame);  // the frame's vectors have one lane

    Value lane() const { return lane_; }  // number of this thread in its team
    Value slot() const { return slot_; }  // number of the team in its block
    // The totals of one lane, merged over the threads of the team. Parts are merged in the order of
    // their threads: all threads get the same bits.
    Values merged(Reducer& reducer, const Values& total);
    void barrier() { b_.barrier(is_warp()); }  // after it, threads may write what the team has read
    // Where blocks share rows: stores the total of this block, from word `first` of the row's
    // `words`.
    void leave(const Values& total, Value block, int64_t first, int64_t words);
    // The merged totals of all blocks, in their order.
    Values all_parts(Reducer& reducer, const Values& like, Value block, int64_t first,
                     int64_t words);

private:
    bool is_warp() const { return plan_.cover == Cover::rows && plan_.team == kWarp; }
    Values over_warp(Reducer& reducer, Values total);
    Values over_block(Reducer& reducer, const Values& total);
    Values over_columns(Reducer& reducer, Values total);
    Value from_thread(Value state, int mask);
    Value to_word(Value state);  // as i64
    Value of_word(Value word, Kind kind);
    Value place_in_scratch(size_t state, Value index);
    void put(const Values& states, Value index);
    Values get(const Values& like, Value index);
    Values select(Value condition, const Values& a, const Values& b);
    Value part_of(Value block, Value part, int64_t first, int64_t words);
    static constexpr int kWarp = 32;

    Frame& f_;
    Builder& b_;
    const GpuPlan& plan_;
    Value thread_, lane_, slot_;
    Value scratch_;
    int64_t scratch_slots_ = 0;  // room for totals in shared memory, state by state
};

// Is this the last of the blocks that share rows to store its part? If so, the ticket is set to 0
// again, for the next launch.
Value is_last_part(Frame& frame, Value ticket);

}  // namespace megjit::codegen::loops
