// codegen/gpu_plan.h -- GpuPlan: how the threads of a GPU share a kernel, and all that its code
// takes from the numbers of a launch: launches of one plan share an image.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/gpu_image.h"

namespace megjit::codegen {

using runtime::CodeTarget;

// What a block computes of a contraction, with `terms` indices of the reduced axis at a time. A
// thread has some rows, and kOwnColumns columns. It takes at most 36 KiB of shared memory, which
// every GPU has.
struct TileSize {
    static constexpr int kOwnColumns = 4;
    int rows, columns, terms, own_rows;
    constexpr int threads() const { return rows / own_rows * (columns / kOwnColumns); }
};
constexpr TileSize kTileSizes[] = {{128, 64, 16, 8}, {64, 64, 16, 4}, {16, 32, 32, 1}};

struct GpuPlan {
    Cover cover = Cover::elements;
    bool wide = false;  // indices need 64 bits
    int vector = 1;  // neighbours on the lane axis that one thread loads and stores together
    int threads = 256;  // of a block
    int team =
        1;  // threads that share a row: of reductions a warp, a block, or one of each 32 in a block
    int parts = 1;  // blocks that share a row (or a tile): of reductions that fill no GPU otherwise
    int slots() const { return threads / team; }  // rows of a block
    // Two facts of tiles: which of kTileSizes they have; and do neighbors of the reduced axis lie
    // side by side in what rows read?
    int tile = 0;
    bool rows_lie_along_sum = false;
    bool tensor_cores = false;  // multiply, where both factors are halves (tiles.h)
    bool joins = false;  // several launches share the grid: a block finds its own in a LaunchTable
    // On a multiprocessor, or 0 where the assembler may choose: so many tiles that a thread has 128
    // registers for its sums. (Left alone, it spills some to make room for one more.)
    int least_blocks() const { return cover == Cover::tiles ? 512 / threads : 0; }
    const TileSize& tile_size() const { return kTileSizes[tile]; }
};

// The parameters of a grid that several launches of a kernel share, as words of 8 bytes: first the
// number of each launch's first block, padded with the number of all blocks to one more than a
// power of two, so that blocks find their launch by halving; then `words` of each launch.
struct LaunchTable {
    std::vector<int> words;  // of Parameters::all: those that the kernel's structure does not tell
    int most = 0;  // launches that fit into kMaxGpuParameters
    int starts() const;  // words before those of the first launch
    int place_of(int launch) const { return starts() + launch * static_cast<int>(words.size()); }
    int size() const { return place_of(most); }
};
LaunchTable launch_table_of(const KernelIR& kernel);
// What the structure says of a stride along the axis of lanes.
std::optional<int64_t> known_stride(const KernelIR& kernel, size_t operand, int axis);

// For a GPU of that architecture (CodeTarget).
GpuPlan gpu_plan_of(const KernelIR& kernel, const LaunchShape& launch, CodeTarget target);
// For compilers whose indices all have 64 bits: a row is the work of one team, which keeps what it
// holds in registers.
GpuPlan single_team_plan_of(const KernelIR& kernel, const LaunchShape& launch, CodeTarget target);
GpuImage image_of(const KernelIR& kernel, const GpuPlan& plan);  // without its code
// What a block leaves for each row that it shares with others, in words of 4 bytes.
int part_words(const KernelIR& kernel);
// Has each sum of the kernel (if it has any) a CPU's order there, and so its bits, whichever
// back-end compiles?
bool keeps_order_on_gpu(const KernelIR& kernel, const LaunchShape& launch);
std::string print(const GpuPlan& plan);  // "rows team=256/256 parts=8 i32 x4"

// Operands are numbered as strides are: inputs, then outputs.
const Operand& operand(const KernelIR& kernel, size_t at);
bool is_output(const KernelIR& kernel, size_t at);
// Do neighbours on the lane axis lie side by side, so that they may be loaded or stored together?
bool is_packed(const KernelIR& kernel, size_t at);

}  // namespace megjit::codegen
