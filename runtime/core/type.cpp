#include "runtime/core/type.h"

#include <algorithm>
#include <atomic>
#include <charconv>

#include "runtime/host/error.h"

namespace megjit::runtime {

Shape::Shape(std::initializer_list<int64_t> extents)
    : Shape(std::span(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const int64_t> extents) {
    for (int64_t extent : extents) push_back(extent);
}

void Shape::push_back(int64_t extent) {
    if (rank_ == kMaxRank)
        user_error({.what = cat("a tensor has at most ", kMaxRank, " axes"),
                    .fix = "merge axes with reshape"},
                   ErrorKind::operands);
    if (extent < 0)
        user_error({.what = cat("a shape cannot hold the negative extent ", extent)},
                   ErrorKind::operands);
    extents_[rank_++] = extent;
}

int64_t Shape::numel() const {
    int64_t n = 1;
    bool overflow = false, empty = false;
    for (int64_t extent : extents()) {
        empty |= extent == 0;
        overflow |= __builtin_mul_overflow(n, extent, &n);
    }
    if (empty) return 0;
    if (overflow || n > (int64_t{1} << 60))
        user_error({.what = cat("shape ", to_string(*this), " has too many elements"),
                    .why = "their number passes 2^60"},
                   ErrorKind::operands);
    return n;
}

std::array<int64_t, kMaxRank> Shape::row_major_strides() const {
    std::array<int64_t, kMaxRank> strides{};
    int64_t step = 1;
    for (int axis = rank_ - 1; axis >= 0; --axis) {
        strides[axis] = step;
        step *= std::max<int64_t>(extents_[axis], 1);
    }
    return strides;
}

bool Shape::operator==(const Shape& other) const {
    return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

namespace {

constexpr size_t kMostPackedLayouts = 4096;

struct PackedLayouts {
    std::array<std::atomic<size_t>, kMostPackedLayouts> bytes{};
    std::array<std::string, kMostPackedLayouts> names;  // set before the layout is known
    std::atomic<size_t> count{0};
};
PackedLayouts& packed_layouts() {
    static PackedLayouts instance;
    return instance;
}
size_t index_of(Layout layout) {
    return static_cast<size_t>(layout) - static_cast<size_t>(Layout::first_packed);
}

}  // namespace

Layout add_packed_layout(size_t bytes, std::string lasting_name) {
    PackedLayouts& all = packed_layouts();
    size_t mine = all.count.load();
    do {
        if (mine == kMostPackedLayouts) return Layout::row_major;
    } while (!all.count.compare_exchange_weak(mine, mine + 1));
    all.names[mine] = std::move(lasting_name);
    all.bytes[mine].store(bytes, std::memory_order_release);
    return static_cast<Layout>(static_cast<size_t>(Layout::first_packed) + mine);
}

std::string to_string(Layout layout) {
    if (is_packed(layout)) return cat("packed", index_of(layout));
    return layout == Layout::row_major ? "row_major" : "channels_last";
}

std::string lasting_name(Layout layout) {
    return is_packed(layout) ? packed_layouts().names[index_of(layout)] : to_string(layout);
}

std::optional<Layout> layout_from_name(std::string_view name) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
        if (name == to_string(layout)) return layout;
    constexpr std::string_view kPrefix = "packed";
    size_t index = 0;
    if (!name.starts_with(kPrefix)) return std::nullopt;
    const auto [end, error] =
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), index);
    if (error != std::errc() || end != name.data() + name.size() ||
        index >= packed_layouts().count.load())
        return std::nullopt;
    return static_cast<Layout>(static_cast<size_t>(Layout::first_packed) + index);
}

size_t Type::bytes() const {
    if (is_packed(layout)) [[unlikely]]
        return packed_layouts().bytes[index_of(layout)].load(std::memory_order_acquire);
    return static_cast<size_t>(numel()) * size_of(dtype);
}

std::string to_string(const Shape& shape) {
    std::string text = "[";
    for (int axis = 0; axis < shape.rank(); ++axis)
        text += (axis ? ", " : "") + std::to_string(shape[axis]);
    return text + "]";
}

std::string to_string(const Type& type) {
    return cat(info(type.dtype).tag, to_string(type.shape),
               type.layout == Layout::row_major ? "" : "@" + to_string(type.layout));
}

std::string to_string(std::span<const Type> types) {
    std::string text;
    for (const Type& type : types) text += (text.empty() ? "" : ", ") + to_string(type);
    return text;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
    const Shape &longer = a.rank() >= b.rank() ? a : b, &shorter = a.rank() >= b.rank() ? b : a;
    Shape result = longer;
    const int offset = longer.rank() - shorter.rank();
    for (int axis = 0; axis < shorter.rank(); ++axis) {
        int64_t& extent = result[axis + offset];
        if (extent == shorter[axis]) continue;
        if (extent == 1) extent = shorter[axis];
        else if (shorter[axis] != 1) return std::nullopt;
    }
    return result;
}

int normalize_axis(int64_t axis, int rank, std::string_view op) {
    const int64_t wrapped = axis < 0 ? axis + rank : axis;
    if (wrapped < 0 || wrapped >= rank)
        user_error({.what = cat(op, ": axis ", axis, " is out of range"),
                    .why = rank ? cat("the tensor has ", rank, " axes: valid are ", -rank, " to ",
                                      rank - 1)
                                : std::string("the tensor is a scalar and has no axes")},
                   ErrorKind::operands);
    return static_cast<int>(wrapped);
}

size_t hash_value(const Type& type, size_t seed) {
    const auto mix = [&seed](uint64_t value) {
        seed = (seed ^ value) * 0x9E3779B97F4A7C15ull;
        seed ^= seed >> 29;
    };
    mix(static_cast<uint64_t>(type.dtype) | static_cast<uint64_t>(type.layout) << 8 |
        static_cast<uint64_t>(type.rank()) << 24);
    for (int64_t extent : type.shape.extents()) mix(static_cast<uint64_t>(extent));
    return seed;
}

}  // namespace megjit::runtime
