#include "codegen/gpu_image.h"

#include <algorithm>
#include <cstring>

#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

constexpr std::string_view kImageMagic = "megjit gpu image 3\n";
constexpr int64_t kMaxGridX = INT32_MAX;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t blocks_of(const GpuImage& image, const KernelIR& kernel, const LaunchShape& launch) {
    int64_t rows = 1;
    for (int axis = 0; axis < kernel.kept(); ++axis)
        rows *= launch.extents[static_cast<size_t>(axis)];
    switch (image.cover) {
        case Cover::fixed: return image.grid[0];
        case Cover::elements:
            return std::min(kMaxBlocks, ceil_div(launch.numel(), image.per_block));
        case Cover::rows: return ceil_div(rows, image.per_block);
        case Cover::columns: {
            const int64_t columns = launch.extents[static_cast<size_t>(kernel.kept()) - 1];
            return columns == 0 ? 0 : rows / columns * ceil_div(columns, image.per_block);
        }
        case Cover::tiles: {
            const auto axis = static_cast<size_t>(kernel.kept()) - 2;
            const int64_t down = launch.extents[axis], across = launch.extents[axis + 1];
            if (rows == 0) return 0;
            return rows / (down * across) * ceil_div(down, image.rows_per_block) *
                   ceil_div(across, image.per_block);
        }
    }
    return 0;
}

// Writes fields one after the other, in the machine's byte order: the cache belongs to one machine.
class Writer {
public:
    template <class T>
    void value(T number) {
        bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    void text(std::string_view text) {
        value<uint64_t>(text.size());
        bytes += text;
    }
    std::string bytes{kImageMagic};
};

class Reader {
public:
    explicit Reader(std::string_view bytes) : rest_(bytes), sound_(bytes.starts_with(kImageMagic)) {
        if (sound_) rest_.remove_prefix(kImageMagic.size());
    }
    template <class T>
    void value(T& number) {
        if (sound_ = sound_ && rest_.size() >= sizeof number; !sound_) return;
        std::memcpy(&number, rest_.data(), sizeof number);
        rest_.remove_prefix(sizeof number);
    }
    size_t size(size_t item_bytes) {
        uint64_t count = 0;
        value(count);
        if (sound_ = sound_ && count <= rest_.size() / item_bytes; !sound_) return 0;
        return count;
    }
    void text(std::string& text) {
        text = rest_.substr(0, size(1));
        rest_.remove_prefix(text.size());
    }
    bool finished() const { return sound_ && rest_.empty(); }

private:
    std::string_view rest_;
    bool sound_;
};

}  // namespace

Grid grid_of(const GpuImage& image, const KernelIR& kernel, const LaunchShape& launch) {
    const int64_t blocks = blocks_of(image, kernel, launch);
    if (blocks > kMaxGridX)
        throw runtime::DeviceError(
            runtime::cat("a kernel of ", blocks, " blocks is larger than a GPU's grid"));
    Grid grid{{static_cast<uint32_t>(blocks), image.parts, 1}};
    if (image.cover == Cover::fixed) std::copy(image.grid, image.grid + 3, grid.blocks);
    return grid;
}

std::vector<uint64_t> parameters_of(const GpuImage& image, const LaunchShape& launch,
                                    std::span<const uint64_t> inputs,
                                    std::span<const uint64_t> outputs,
                                    std::span<const uint64_t> shared) {
    std::vector<uint64_t> addresses(inputs.begin(), inputs.end());
    addresses.insert(addresses.end(), outputs.begin(), outputs.end());
    for (uint64_t address : addresses)
        if (address % image.alignment != 0)
            throw runtime::InternalError(runtime::cat("a GPU kernel's operand is not aligned to ",
                                                      image.alignment, " bytes"));
    std::vector<uint64_t> words;
    if (image.parameters == Parameters::pointers) {
        for (int k : image.pointers) words.push_back(addresses.at(static_cast<size_t>(k)));
        return words;
    }
    words = std::move(addresses);  // for a table: its words are chosen from all of these
    for (const auto* numbers : {&launch.extents, &launch.strides})
        for (int64_t number : *numbers) words.push_back(static_cast<uint64_t>(number));
    words.insert(words.end(), shared.begin(), shared.end());
    return words;
}

std::string to_bytes(const GpuImage& image) {
    Writer writer;
    writer.text(image.entry);
    writer.value(image.is_ptx);
    writer.value(image.cover);
    writer.value(image.parameters);
    writer.value(image.per_block);
    writer.value(image.rows_per_block);
    for (int axis = 0; axis < 3; ++axis) {
        writer.value(image.grid[axis]);
        writer.value(image.block[axis]);
    }
    writer.value(image.shared_bytes);
    writer.value(image.parts);
    writer.value(image.part_bytes);
    writer.value(image.alignment);
    writer.value<uint64_t>(image.pointers.size());
    for (int pointer : image.pointers) writer.value(pointer);
    writer.text(image.code);
    return std::move(writer.bytes);
}

std::optional<GpuImage> image_from_bytes(std::string_view bytes) {
    Reader reader(bytes);
    GpuImage image;
    reader.text(image.entry);
    reader.value(image.is_ptx);
    reader.value(image.cover);
    reader.value(image.parameters);
    reader.value(image.per_block);
    reader.value(image.rows_per_block);
    for (int axis = 0; axis < 3; ++axis) {
        reader.value(image.grid[axis]);
        reader.value(image.block[axis]);
    }
    reader.value(image.shared_bytes);
    reader.value(image.parts);
    reader.value(image.part_bytes);
    reader.value(image.alignment);
    image.pointers.resize(reader.size(sizeof(int)));
    for (int& pointer : image.pointers) reader.value(pointer);
    reader.text(image.code);
    if (!reader.finished()) return {};
    return image;
}

}  // namespace megjit::codegen
