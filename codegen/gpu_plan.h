// codegen/gpu_plan.h -- GpuPlan: how the threads of a GPU share a kernel, with everything that its
// code takes from the numbers of a launch: launches of one plan share an image.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/gpu_image.h"

namespace megjit::codegen {

using runtime::CodeTarget;

// The part of a contraction that a block computes, with `terms` indices of the reduced axis at a
// time. A thread has own_rows rows and kOwnColumns columns. A block takes at most 36 KiB of shared
// memory, which every GPU has.
struct TileSize {
    static constexpr int kOwnColumns = 4;
    int rows, columns, terms, own_rows;
    constexpr int threads() const { return rows / own_rows * (columns / kOwnColumns); }
};
constexpr TileSize kTileSizes[] = {{128, 64, 16, 8}, {64, 64, 16, 4}, {16, 32, 32, 1}};

struct GpuPlan {
    Cover cover = Cover::elements;
    bool wide = false;  // indices need 64 bits
    int vector = 1;  // how many neighbours on the lane axis a thread loads and stores together
    int threads = 256;  // in a block
    int team = 1;  // threads that share a row: a warp, a block, or every 32nd thread of it
    int parts = 1;  // blocks that share a row (or a tile), so that these fill the GPU
    int slots() const { return threads / team; }  // rows that a block has at a time
    // For tiles: which of kTileSizes they have, and whether neighbors along the reduced axis lie
    // side by side in what rows read.
    int tile = 0;
    bool rows_lie_along_sum = false;
    bool tensor_cores = false;  // tensor cores multiply, for both factors are halves (tiles.h)
    bool joins = false;  // several launches share the grid: a block finds its own in a LaunchTable
    // Least number of blocks on a multiprocessor, or 0 where the assembler may choose: so many
    // tiles that a thread has 128 registers for its sums. (Left alone, the assembler spills some to
    // make room for another block.)
    int least_blocks() const { return cover == Cover::tiles ? 512 / threads : 0; }
    const TileSize& tile_size() const { return kTileSizes[tile]; }
};

// The parameters of a grid that several launches of a kernel share, as words of 8 bytes. First
// comes the number of each launch's first block, padded with the number of all blocks to one more
// than a power of two, so that blocks find their launch by halving; then come the `words` of each
// launch.
struct LaunchTable {
    std::vector<int> words;  // words of Parameters::all that the kernel's structure does not give
    int most = 0;  // how many launches fit into kMaxGpuParameters
    int starts() const;  // number of words before those of the first launch
    int place_of(int launch) const { return starts() + launch * static_cast<int>(words.size()); }
    int size() const { return place_of(most); }
};
LaunchTable launch_table_of(const KernelIR& kernel);
// The stride along an axis, if the kernel's structure gives it.
std::optional<int64_t> known_stride(const KernelIR& kernel, size_t operand, int axis);

// The plan for a GPU of the target's architecture.
GpuPlan gpu_plan_of(const KernelIR& kernel, const LaunchShape& launch, CodeTarget target);
// A plan for compilers whose indices all have 64 bits: one team works on a row, and keeps what it
// holds in registers.
GpuPlan single_team_plan_of(const KernelIR& kernel, const LaunchShape& launch, CodeTarget target);
GpuImage image_of(const KernelIR& kernel, const GpuPlan& plan);  // leaves the code empty
// How many words of 4 bytes a block stores for each row that it shares with others.
int part_words(const KernelIR& kernel);
// Is each sum of the kernel (if it has any) in a CPU's order on the GPU? Then it has the same bits,
// whichever back-end compiles.
bool keeps_order_on_gpu(const KernelIR& kernel, const LaunchShape& launch);
std::string print(const GpuPlan& plan);  // "rows team=256/256 parts=8 i32 x4"

// Operands are numbered as strides are: first inputs, then outputs.
const Operand& operand(const KernelIR& kernel, size_t at);
bool is_output(const KernelIR& kernel, size_t at);
// Do neighbours on the lane axis lie side by side, so that they may be loaded or stored together?
bool is_packed(const KernelIR& kernel, size_t at);

}  // namespace megjit::codegen
