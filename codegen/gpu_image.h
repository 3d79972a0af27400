// codegen/gpu_image.h -- GpuImage: a kernel as code of one GPU architecture, with all that a launch
// needs. It knows no driver: backends/cuda loads and launches it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// How the blocks of the grid divide the work.
enum class Cover : uint8_t {
    fixed,  // the grid is `grid`, whatever the launch: the image was made for one launch
    elements,  // `per_block` elements of the iteration space a block; blocks stride over it
    rows,  // `per_block` indices of the kept axes a block
    columns,  // `per_block` indices of the last kept axis a block, for one index of the kept axes
              // before it
    tiles,  // as columns, and `rows_per_block` indices of the axis before it
};

// The kernel's parameters: packed words of 8 bytes each.
enum class Parameters : uint8_t {
    all,  // addresses of the inputs in memory and of the outputs; then extents and strides as
          // LaunchShape has them
    pointers,  // addresses alone, in the order of `pointers`: all numbers are in the code
    table,  // a LaunchTable (gpu_plan.h): several launches share the grid
};

struct GpuImage {
    std::string code = {};
    bool is_ptx = false;  // a text that the driver compiles; else a CUBIN
    std::string entry = "megjit_kernel";
    Cover cover = Cover::elements;
    int64_t per_block = 0, rows_per_block = 1;
    uint32_t grid[3] = {1, 1, 1};  // for Cover::fixed only
    uint32_t block[3] = {1, 1, 1};  // threads
    uint32_t shared_bytes = 0;  // dynamic shared memory
    // Blocks that share a row, side by side along the grid's y. When there are several, each has
    // memory for its part of the row, and two words follow the parameters: the addresses of all
    // parts, and of a counter for each x of the grid (4 bytes, 0 before and after a launch).
    uint32_t parts = 1;
    uint32_t part_bytes = 0;
    uint32_t alignment = 16;  // in bytes; every address has it
    Parameters parameters = Parameters::all;
    std::vector<int> pointers = {};  // Parameters::pointers only: inputs in memory, then outputs
    bool operator==(const GpuImage&) const = default;
};

constexpr size_t kMaxGpuParameters = 4096 / 8;  // words; the limit of every driver and architecture
constexpr int64_t kMaxBlocks = int64_t{1} << 20;  // for Cover::elements: fills any GPU

struct Grid {
    uint32_t blocks[3] = {1, 1, 1};  // 0 in x: there is nothing to do, and nothing may be launched
};
Grid grid_of(const GpuImage& image, const KernelIR& kernel, const LaunchShape& launch);

// The words of the parameters. `inputs` are the inputs in memory; `shared` are the two addresses
// that parts need.
std::vector<uint64_t> parameters_of(const GpuImage& image, const LaunchShape& launch,
                                    std::span<const uint64_t> inputs,
                                    std::span<const uint64_t> outputs,
                                    std::span<const uint64_t> shared = {});

// Converts images for the cache on disk, and back. Nothing when the bytes are not those of an
// image.
std::string to_bytes(const GpuImage& image);
std::optional<GpuImage> image_from_bytes(std::string_view bytes);

}  // namespace megjit::codegen
