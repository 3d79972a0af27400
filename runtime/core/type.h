// runtime/core/type.h -- Shape and Type: what is known of a tensor without its data.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/dtype.h"

namespace megjit::runtime {

inline constexpr int kMaxRank = 8;

// Extents of a tensor, outermost first. A plain value of fixed size, so that making one never
// allocates.
class Shape {
public:
    Shape() = default;
    Shape(std::initializer_list<int64_t> extents);
    explicit Shape(
        std::span<const int64_t> extents);  // UserError above kMaxRank or for a negative extent

    int rank() const { return rank_; }
    int64_t operator[](int axis) const { return extents_[axis]; }
    int64_t& operator[](int axis) { return extents_[axis]; }
    const int64_t* begin() const { return extents_.data(); }
    const int64_t* end() const { return extents_.data() + rank_; }
    std::span<const int64_t> extents() const { return {begin(), static_cast<size_t>(rank_)}; }

    int64_t numel() const;  // 1 for a scalar; UserError when the product passes 2^62
    void push_back(int64_t extent);
    std::array<int64_t, kMaxRank> row_major_strides() const;  // in elements

    bool operator==(const Shape& other) const;

private:
    std::array<int64_t, kMaxRank> extents_{};
    uint8_t rank_ = 0;
};

// Order in which the elements of a tensor lie in memory. Programs see the logical shape only.
// `channels_last` (N, spatial..., C) is used between convolutions. Layouts from `first_packed` on
// are orders that a backend added with add_packed_layout for its own kernels (weights in blocks,
// perhaps padded).
enum class Layout : uint16_t { row_major, channels_last, first_packed };
inline bool is_packed(Layout layout) { return layout >= Layout::first_packed; }

// Adds a layout for tensors that take `bytes` bytes; row_major when there are too many layouts.
// Layouts are never removed. `lasting_name` describes it in words that mean the same in every
// process; "" if there are none.
Layout add_packed_layout(size_t bytes, std::string lasting_name = {});

std::string to_string(Layout layout);  // "row_major", "channels_last", "packed7"
std::string lasting_name(Layout layout);  // to_string() if it is not packed
std::optional<Layout> layout_from_name(std::string_view name);  // nothing for an unknown one

struct Type {
    DType dtype = DType::f32;
    Shape shape = {};
    Layout layout = Layout::row_major;

    int64_t numel() const { return shape.numel(); }
    size_t bytes() const;  // UserError on overflow
    int rank() const { return shape.rank(); }
    bool operator==(const Type&) const = default;
};

std::string to_string(const Shape& shape);  // "[8, 64]"
std::string to_string(const Type& type);  // "f32[8, 64]"
std::string to_string(std::span<const Type> types);  // "f32[8, 64], i32[8]"

// NumPy's rule: trailing axes must be equal or 1. nullopt when the shapes do not go together.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);

// Maps a negative axis to a positive one; UserError that names the op and the valid range.
int normalize_axis(int64_t axis, int rank, std::string_view op);

size_t hash_value(const Type& type, size_t seed);

}  // namespace megjit::runtime
