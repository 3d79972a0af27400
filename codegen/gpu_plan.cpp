#include "codegen/gpu_plan.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "codegen/row_plan.h"
#include "codegen/tiles.h"
#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

constexpr int kWarp = 32;
constexpr size_t kLongProgram =
    200;  // instructions; in a longer program eight lanes cost more registers than they save loads
constexpr int64_t kFullGrid = 256;  // blocks; about two for each multiprocessor of a large GPU
// Elements of a row, or of a column in a block of 32: a part with fewer is not worth a block. (On
// an H100, column sums of bfloat16[8192, 768] reached a tenth of the memory's speed with 48
// blocks.)
constexpr int64_t kLeastPart = 4096, kLeastPartOfColumn = 512;
// An index plus the stride of a grid, which is at most all indices and a block, must not overflow.
constexpr int64_t kNarrowIndices = (int64_t{1} << 30) - (int64_t{1} << 14);

int64_t product(const std::vector<int64_t>& extents, int first, int last) {
    int64_t count = 1;
    for (int axis = first; axis < last; ++axis) count *= extents[static_cast<size_t>(axis)];
    return count;
}

// Gathered offsets are always added in 64 bits: their size depends on the data.
bool needs_wide(const KernelIR& kernel, const LaunchShape& launch) {
    int64_t cells = 1;
    for (int64_t extent : launch.extents) cells *= std::max<int64_t>(extent, 1);
    if (cells > kNarrowIndices) return true;
    const size_t rank = launch.extents.size(),
                 operands = kernel.inputs.size() + (kernel.reduced ? kernel.outputs.size() : 0);
    for (size_t at = 0; at < operands; ++at) {
        int64_t reach = 0;
        for (size_t axis = 0; axis < rank; ++axis)
            reach += std::abs(launch.strides[at * rank + axis]) *
                     std::max<int64_t>(launch.extents[axis] - 1, 0);
        if (reach > kNarrowIndices) return true;
    }
    return false;
}

// May groups of `vector` elements be loaded and stored together? Rank 1 has a tail; other rows must
// be whole groups, and every row must begin at a whole group.
bool fits(const KernelIR& kernel, const LaunchShape& launch, int vector) {
    const size_t rank = launch.extents.size(),
                 operands = kernel.inputs.size() + kernel.outputs.size();
    const auto whole = [&](int64_t number) { return number % vector == 0; };
    if (!(kernel.reduced == 0 && rank == 1) && !whole(launch.extents[rank - 1])) return false;
    size_t gather = operands * rank;
    for (size_t at = 0; at < operands; ++at) {
        const bool is_gathered = operand(kernel, at).by >= 0;
        const int64_t gather_stride = is_gathered ? launch.strides[gather++] : 0;
        if (!is_packed(kernel, at)) continue;
        if (!whole(gather_stride)) return false;
        if (kernel.reduced == 0 && is_output(kernel, at)) continue;  // row-major, and so aligned
        for (size_t axis = 0; axis + 1 < rank; ++axis)
            if (!whole(launch.strides[at * rank + axis])) return false;
    }
    return true;
}

int vector_of(const KernelIR& kernel, const LaunchShape& launch) {
    if (kernel.lanes != Lanes::last) return 1;  // neighbours belong to other threads
    size_t largest = 0;
    for (size_t at = 0; at < kernel.inputs.size() + kernel.outputs.size(); ++at)
        if (is_packed(kernel, at))
            largest = std::max(largest, runtime::size_of(operand(kernel, at).dtype));
    if (largest == 0) return 1;
    int vector = std::min<int>(static_cast<int>(16 / largest),
                               static_cast<size_t>(kernel.program.size()) > kLongProgram ? 4 : 8);
    while (vector > 1 && !fits(kernel, launch, vector)) vector /= 2;
    return vector;
}

// How many blocks share a row, where `blocks` would compute the kernel otherwise. It is a power of
// two, so that few images serve all lengths, and follows from extents alone, so that results do not
// depend on the GPU.
int parts_of(const KernelIR& kernel, int64_t blocks, int64_t length, int64_t least) {
    int parts = 1;
    while (kernel.passes() == 1 && parts < 128 && blocks * parts < kFullGrid &&
           length / (2 * parts) >= least)
        parts *= 2;
    return parts;
}

int64_t tiles_of(const KernelIR& kernel, const LaunchShape& launch, const TileSize& tile) {
    const auto pieces = [&](int axis, int64_t size) {
        return (launch.extents[static_cast<size_t>(axis)] + size - 1) / size;
    };
    const int rows = kernel.kept() - 2;
    return product(launch.extents, 0, rows) * pieces(rows, tile.rows) *
           pieces(rows + 1, tile.columns);
}

// Products with enough rows and columns fill the GPU with large tiles, which read less.
int tile_of(const KernelIR& kernel, const LaunchShape& launch) {
    constexpr int kSmallest = static_cast<int>(std::size(kTileSizes)) - 1;
    const int64_t rows = launch.extents[static_cast<size_t>(kernel.kept()) - 2];
    const auto fits = [&](const TileSize& tile) {
        return 2 * rows > tile.rows && tiles_of(kernel, launch, tile) >= kFullGrid / 2;
    };
    int tile = 0;
    while (tile < kSmallest && !fits(kTileSizes[tile])) ++tile;
    return tile;
}

// How many blocks share the terms of a tile: enough to fill the GPU, and some more, which load
// while others wait.
int parts_of_tiles(int64_t tiles, int64_t terms) {
    constexpr int64_t kLeastTerms = 128;
    int parts = 1;
    while (parts < 16 && tiles * parts < 2 * kFullGrid && terms / (2 * parts) >= kLeastTerms)
        parts *= 2;
    return parts;
}

// Decides by the elements that only rows read: do most lie along the sum?
bool rows_lie_along_sum(const KernelIR& kernel, const LaunchShape& launch) {
    int64_t along = 0;
    const auto stride = [&](size_t i, int axis) {
        return launch.strides[i * static_cast<size_t>(kernel.rank) + static_cast<size_t>(axis)];
    };
    for (size_t i = 0; i < kernel.inputs.size(); ++i) {
        const Operand& input = kernel.inputs[i];
        if (input.per_row || input.repeats || input.is_offset) continue;
        if (stride(i, kernel.rank - 1) == 1) ++along;
        else if (stride(i, kernel.kept() - 2) == 1) --along;
    }
    return along >= 0;
}

// Parts and tiles cannot join: they need memory of their own for each block of a launch.
bool may_join(const KernelIR& kernel, const LaunchShape& launch, const GpuPlan& plan,
              CodeTarget target) {
    constexpr int kFirstWithTables = 70;  // here code may index its parameters (__grid_constant__)
    return launch.joins && target.gpu_arch >= kFirstWithTables && plan.parts == 1 &&
           plan.cover != Cover::tiles && launch_table_of(kernel).most > 1;
}

}  // namespace

int LaunchTable::starts() const {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(most))) + 1;
}

std::optional<int64_t> known_stride(const KernelIR& kernel, size_t at, int axis) {
    if (axis != kernel.lane_axis()) return {};
    switch (operand(kernel, at).inner) {
        case Inner::contiguous: return 1;
        case Inner::broadcast: return 0;
        case Inner::strided:
        case Inner::transposed: break;
    }
    return {};
}

LaunchTable launch_table_of(const KernelIR& kernel) {
    constexpr int kMost = 128;
    LaunchTable table;
    int word = 0;
    const auto take = [&](size_t count) {
        for (size_t n = 0; n < count; ++n) table.words.push_back(word++);
    };
    take(memory_inputs(kernel) + kernel.outputs.size() + static_cast<size_t>(kernel.rank));
    for (size_t at = 0; at < kernel.inputs.size() + kernel.outputs.size(); ++at)
        for (int axis = 0; axis < kernel.rank; ++axis, ++word)
            if (!known_stride(kernel, at, axis) && !(is_output(kernel, at) && kernel.reduced == 0))
                table.words.push_back(word);
    take(static_cast<size_t>(
        std::ranges::count_if(kernel.inputs, [](const Operand& input) { return input.by >= 0; })));
    table.most = kMost;
    while (table.most > 0 && table.size() > static_cast<int>(kMaxGpuParameters)) --table.most;
    return table;
}

const Operand& operand(const KernelIR& kernel, size_t at) {
    return is_output(kernel, at) ? kernel.outputs[at - kernel.inputs.size()] : kernel.inputs[at];
}

bool is_output(const KernelIR& kernel, size_t at) { return at >= kernel.inputs.size(); }

bool is_packed(const KernelIR& kernel, size_t at) {
    const Operand& it = operand(kernel, at);
    if (kernel.reduced == 0 && is_output(kernel, at)) return true;
    if (it.inner != Inner::contiguous || it.per_row || it.is_offset) return false;
    if (it.by < 0) return true;
    const Operand& index = kernel.inputs[static_cast<size_t>(it.by)];
    return index.per_row || index.inner == Inner::broadcast;
}

GpuPlan gpu_plan_of(const KernelIR& kernel, const LaunchShape& launch, CodeTarget target) {
    constexpr int kFirstWithTensorCores = 80;  // its mma takes pieces of these sizes
    GpuPlan plan{.wide = needs_wide(kernel, launch), .vector = vector_of(kernel, launch)};
    plan.joins = may_join(kernel, launch, plan, target);
    if (kernel.reduced == 0) return plan;
    const int64_t length = product(launch.extents, kernel.kept(), kernel.rank);
    if (is_one_product(kernel)) {
        plan.cover = Cover::tiles;
        plan.tile = tile_of(kernel, launch);
        plan.threads = plan.tile_size().threads();
        if (kernel.reduced == 1)
            plan.parts = parts_of_tiles(tiles_of(kernel, launch, plan.tile_size()), length);
        plan.vector = TileSize::kOwnColumns;
        plan.tensor_cores =
            target.gpu_arch >= kFirstWithTensorCores && halves_of(kernel).has_value();
        plan.rows_lie_along_sum = rows_lie_along_sum(kernel, launch);
        plan.joins = false;
        return plan;
    }
    if (kernel.lanes != Lanes::last) {
        plan.cover = Cover::columns;  // as wide as a warp, so that its loads are whole lines
        plan.team = length < 256 ? 8 : 32;
        plan.threads = kWarp * plan.team;
        const int64_t columns = launch.extents[static_cast<size_t>(kernel.kept()) - 1];
        plan.parts = parts_of(
            kernel, product(launch.extents, 0, kernel.kept() - 1) * ((columns + kWarp - 1) / kWarp),
            length, kLeastPartOfColumn);
    } else {
        plan.cover = Cover::rows;
        // Blocks are small where there are enough: while some join their sums, others load. But few
        // long rows are under way at once where each is walked again, so that the second walk finds
        // them in the cache.
        const bool prefers_small =
            product(launch.extents, 0, kernel.kept()) >= 2 * kFullGrid && kernel.passes() == 1;
        plan.team = length <= 1024 ? kWarp : length <= 8192 || prefers_small ? 256 : 1024;
        plan.threads = std::max(plan.team, 256);
        if (plan.team > kWarp)
            plan.parts =
                parts_of(kernel, product(launch.extents, 0, kernel.kept()), length, kLeastPart);
    }
    plan.joins = may_join(kernel, launch, plan, target);
    return plan;
}

GpuPlan single_team_plan_of(const KernelIR& kernel, const LaunchShape& launch, CodeTarget target) {
    GpuPlan plan = gpu_plan_of(kernel, launch, target);
    plan.wide = true;
    plan.parts = 1;
    plan.joins = may_join(kernel, launch, plan, target);
    // In a block of 1024 a thread has 64 registers, too few for several reductions at once.
    if (plan.threads > 256 && kernel.reductions.size() > 1) {
        plan.team = plan.cover == Cover::columns ? 8 : 256;
        plan.threads = 256;
    }
    return plan;
}

static int words_of_part(const KernelIR& kernel, const GpuPlan& plan) {
    if (plan.cover == Cover::tiles) return plan.tile_size().rows * plan.tile_size().columns;
    return plan.slots() * part_words(kernel);
}

GpuImage image_of(const KernelIR& kernel, const GpuPlan& plan) {
    GpuImage image;
    image.cover = plan.cover;
    image.per_block =
        plan.cover == Cover::elements ? int64_t{plan.threads} * plan.vector : plan.slots();
    if (plan.cover == Cover::tiles) {
        image.per_block = plan.tile_size().columns;
        image.rows_per_block = plan.tile_size().rows;
    }
    if (plan.joins) image.parameters = Parameters::table;
    image.block[0] = static_cast<uint32_t>(plan.threads);
    image.parts = static_cast<uint32_t>(plan.parts);
    if (plan.parts > 1) image.part_bytes = static_cast<uint32_t>(words_of_part(kernel, plan)) * 4;
    return image;
}

int part_words(const KernelIR& kernel) {
    int words = 0;
    for (const RowWalk& walk : row_plan_of(kernel).walks)
        for (const Reduced& reduced : walk.reductions)
            for (const Accumulator& by : reduced.accumulators)
                words += (by.wide || runtime::bits_in(by.type) == 64 ? 2 : 1) + by.has_place();
    return words;
}

bool keeps_order_on_gpu(const KernelIR& kernel, const LaunchShape& launch) {
    if (kernel.reduced == 0) return true;
    if (!is_one_product(kernel) || halves_of(kernel)) return false;
    return gpu_plan_of(kernel, launch, {}).parts == 1;
}

std::string print(const GpuPlan& plan) {
    using runtime::cat;
    if (plan.cover == Cover::tiles)
        return cat("tiles ", plan.tile_size().rows, "x", plan.tile_size().columns,
                   plan.rows_lie_along_sum ? " along" : " across",
                   plan.tensor_cores ? " by tensor cores" : "",
                   plan.parts > 1 ? cat(" parts=", plan.parts) : "",
                   plan.wide ? " i64 x" : " i32 x", plan.vector);
    const char* cover = plan.cover == Cover::elements ? "elements"
                        : plan.cover == Cover::rows   ? "rows"
                                                      : "columns";
    return cat(cover, " team=", plan.team, "/", plan.threads,
               plan.parts > 1 ? cat(" parts=", plan.parts) : "", plan.wide ? " i64 x" : " i32 x",
               plan.vector, plan.joins ? " joint" : "");
}

}  // namespace megjit::codegen
