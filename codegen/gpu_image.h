// codegen/gpu_image.h -- GpuImage: a kernel as code of one GPU architecture, with all that a launch
// needs. Knows no driver: backends/cuda loads and launches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// What the blocks of the grid share among them.
enum class Cover : uint8_t {
    fixed,  // `grid` blocks, whatever the launch: the image was made for one launch
    elements,  // `per_block` elements of the iteration space a block; kernels stride over the grid
    rows,  // `per_block` indices of the kept axes a block
    columns,  // `per_block` indices of the last kept axis a block, for every index of the kept axes
              // before it
    tiles,  // as columns, of `rows_per_block` indices of the axis before it
};

// The kernel's parameters: words of 8 bytes each, which lie packed.
enum class Parameters : uint8_t {
    all,  // addresses of the inputs in memory, of the outputs; then extents and strides as
          // LaunchShape has them
    pointers,  // addresses alone, in the order of `pointers`: all numbers are in the code
    table,  // a LaunchTable (gpu_plan.h): several launches share the grid
};

struct GpuImage {
    std::string code = {};
    bool is_ptx = false;  // text, which the driver compiles; else a CUBIN
    std::string entry = "megjit_kernel";
    Cover cover = Cover::elements;
    int64_t per_block = 0, rows_per_block = 1;
    uint32_t grid[3] = {1, 1, 1};  // Cover::fixed only
    uint32_t block[3] = {1, 1, 1};  // threads
    uint32_t shared_bytes = 0;  // dynamic shared memory
    // Blocks that share a row, side by side along the grid's y. When there are several, each has
    // memory for its part of the row, and two words follow the parameters: the address of all
    // parts, and that of a counter (of 4 bytes, 0 before and after a launch) for each x of the
    // grid.
    uint32_t parts = 1;
    uint32_t part_bytes = 0;
    uint32_t alignment = 16;  // of every address, in bytes
    Parameters parameters = Parameters::all;
    std::vector<int> pointers =
        {};  // Parameters::pointers only: k < memory_inputs: input k, else output k - memory_inputs
    bool operator==(const GpuImage&) const = default;
};

constexpr size_t kMaxGpuParameters = 4096 / 8;  // words; what every driver and architecture takes
constexpr int64_t kMaxBlocks = int64_t{1} << 20;  // of Cover::elements: fills any GPU many times

struct Grid {
    uint32_t blocks[3] = {1, 1,
                          1};  // none in x: there is nothing to do, so nothing may be launched
};
Grid grid_of(const GpuImage& image, const KernelIR& kernel, const LaunchShape& launch);

// The words of the parameters. `inputs` are those in memory; `shared` are the two addresses that
// parts need.
std::vector<uint64_t> parameters_of(const GpuImage& image, const LaunchShape& launch,
                                    std::span<const uint64_t> inputs,
                                    std::span<const uint64_t> outputs,
                                    std::span<const uint64_t> shared = {});

// For the cache on disk. Nothing when the bytes are not those of an image.
std::string to_bytes(const GpuImage& image);
std::optional<GpuImage> image_from_bytes(std::string_view bytes);

}  // namespace megjit::codegen
