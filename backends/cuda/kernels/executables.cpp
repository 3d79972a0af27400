#include "backends/cuda/kernels/executables.h"

#include <algorithm>
#include <bit>

#include "backends/cuda/kernels/texts.h"
#include "runtime/host/half.h"

namespace megjit::cuda {

Prepared zeros(std::span<const Type> outputs) {
    std::vector<size_t> bytes;
    for (const Type& type : outputs) bytes.push_back(type.bytes());
    return executable(
        [bytes = std::move(bytes)](CudaStream& stream, void* const*, void* const* out, void*) {
        for (size_t i = 0; i < bytes.size(); ++i)
            stream.clear(reinterpret_cast<Address>(out[i]), bytes[i]);
    });
}

std::string with_prelude(std::string_view text) {
    return std::string(texts::prelude) + std::string(text);
}

std::string storage_type(DType dtype) {
    switch (dtype) {
        case DType::f32: return "float";
        case DType::f16: return "f16";
        case DType::bf16: return "bf16";
        case DType::i32: return "i32";
        case DType::i16: return "i16";
        case DType::i8: return "i8";
        case DType::u16: return "u16";
        case DType::u8:
        case DType::b8: return "u8";
        case DType::f64:
        case DType::i64:
            runtime::user_error(
                {.what = cat("this op has no kernel for ", runtime::info(dtype).name, " on GPUs"),
                 .fix = "cast its operands, or move them with .to('cpu0')"},
                runtime::ErrorKind::type);
        case DType::c64: break;
    }
    throw runtime::InternalError("a kernel for complex64 takes floats");
}

std::string unit_type(int64_t bytes) {
    switch (bytes) {
        case 1: return "unsigned char";
        case 2: return "unsigned short";
        case 4: return "unsigned";
        case 8: return "unsigned long long";
        default: return "uint4";
    }
}

int64_t widest_unit(std::initializer_list<int64_t> numbers) {
    int64_t unit = kWidestUnit;
    for (const int64_t number : numbers)
        while (number % unit != 0) unit /= 2;
    return unit;
}

uint64_t element_bits(DType dtype, double value) {
    const auto number = static_cast<float>(value);
    switch (dtype) {
        case DType::f32:
        case DType::c64: return std::bit_cast<uint32_t>(number);
        case DType::f16: return runtime::float_to_half(number);
        case DType::bf16: return runtime::float_to_bfloat(number);
        case DType::b8: return value != 0;
        case DType::f64: return std::bit_cast<uint64_t>(value);
        default: return static_cast<uint64_t>(static_cast<int64_t>(value));
    }
}

// --- copies -------------------------------------------------------------------------------------

namespace {

// laid out as in the kernel
struct DeviceRegion {
    int64_t extent[runtime::kMaxRank] = {}, from[runtime::kMaxRank] = {},
            to[runtime::kMaxRank] = {};
    explicit DeviceRegion(const Region& region) {
        for (int i = 0; i < region.rank; ++i) {
            extent[i] = region.axes[i].extent;
            from[i] = region.axes[i].from;
            to[i] = region.axes[i].to;
        }
    }
};

// A region in wider units: its elements of `bytes` become fewer ones.
Region widened(Region region, int64_t bytes, int64_t unit) {
    const int64_t factor = unit / bytes;
    for (int i = 0; i + 1 < region.rank; ++i)
        region.axes[i].from /= factor, region.axes[i].to /= factor;
    region.axes[region.rank - 1].extent /= factor;
    return region;
}

int64_t unit_of(const Region& region, int64_t bytes) {
    const Region::Axis& last = region.axes[region.rank - 1];
    if (last.from != 1 || last.to != 1) return bytes;
    int64_t unit = widest_unit({last.extent * bytes});
    for (int i = 0; i + 1 < region.rank; ++i)
        unit =
            std::min(unit, widest_unit({region.axes[i].from * bytes, region.axes[i].to * bytes}));
    return unit;
}

// Moves the axis along which `from` is contiguous before the last one, along which `to` is. Returns
// false when tiles would not help.
bool arrange_for_tiles(Region& region) {
    const Region::Axis last = region.axes[region.rank - 1];
    if (region.rank < 2 || last.to != 1 || last.from == 1 || last.from == 0) return false;
    for (int i = 0; i + 1 < region.rank; ++i)
        if (region.axes[i].from == 1) {
            std::rotate(region.axes + i, region.axes + i + 1, region.axes + region.rank - 1);
            return true;
        }
    return false;
}

constexpr int64_t kCopyTile = 32;  // the same number as in copy_tiles

}  // namespace

RegionCopy::Way RegionCopy::way_of(Gpu& gpu, const Region& region, int64_t unit) {
    Region arranged = region;
    const bool tiles = arrange_for_tiles(arranged);
    return {SourceKernel(gpu, with_prelude(texts::copy), tiles ? "copy_tiles" : "copy_rows",
                         {{"INDEX", index_type(region.numel())},
                          {"UNIT", unit_type(unit)},
                          {"RANK", cat(region.rank)}}),
            arranged, unit, tiles};
}

RegionCopy::RegionCopy(Gpu& gpu, const Region& region, int64_t element_bytes)
    : region_(region.merged()), bytes_(region.numel() * element_bytes) {
    if (bytes_ == 0 || is_block()) return;
    const int64_t unit = unit_of(region_, element_bytes);
    ways_.push_back(way_of(gpu, widened(region_, element_bytes, unit), unit));
    if (unit != element_bytes) ways_.push_back(way_of(gpu, region_, element_bytes));
}

void RegionCopy::operator()(CudaStream& stream, const void* from, void* to) const {
    if (bytes_ == 0) return;
    if (is_block()) {
        if (from != to) stream.copy(to, from, static_cast<size_t>(bytes_));
        return;
    }
    const bool is_aligned = (address_of(from) | address_of(to)) % ways_[0].unit == 0;
    const Way& way = is_aligned ? ways_[0] : ways_.back();
    const Region& r = way.region;
    const DeviceRegion region(r);
    const bool wide = r.numel() > INT32_MAX;
    const auto launch = [&](LaunchSize size, auto... more) {
        way.kernel.launch(stream, size, region, more..., from, to);
    };
    if (!way.tiles) {
        const int64_t count = r.numel();
        if (wide) return launch(blocks_for(count), static_cast<uint64_t>(count));
        return launch(blocks_for(count), static_cast<uint32_t>(count));
    }
    const auto tiles_of = [](int64_t extent) { return (extent + kCopyTile - 1) / kCopyTile; };
    const int64_t p = tiles_of(r.axes[r.rank - 2].extent), q = tiles_of(r.axes[r.rank - 1].extent);
    int64_t tiles = p * q;
    for (int i = 0; i + 2 < r.rank; ++i) tiles *= r.axes[i].extent;
    LaunchSize size = blocks_for(tiles, 1);
    size.block[0] = 32, size.block[1] = 8;
    const auto tiles_p = static_cast<uint32_t>(p), tiles_q = static_cast<uint32_t>(q);
    if (wide) return launch(size, tiles_p, tiles_q, static_cast<uint64_t>(tiles));
    launch(size, tiles_p, tiles_q, static_cast<uint32_t>(tiles));
}

Prepared copy_of(const Type& x) {
    return executable(
        [bytes = x.bytes()](CudaStream& stream, void* const* in, void* const* out, void*) {
        if (in[0] != out[0]) stream.copy(out[0], in[0], bytes);
    }, 0, true);
}

Type as_floats(const Type& type) {
    Type floats{DType::f32, type.shape};
    floats.shape.push_back(2);
    return floats;
}

}  // namespace megjit::cuda
