// runtime/core/dtype.h -- the element types of a Tensor. One row per type in dtype.cpp is the only
// list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace megjit::runtime {

enum class DType : uint8_t { f32, f16, bf16, i32, i16, i8, u8, u16, b8, c64, f64, i64 };
inline constexpr int kDTypeCount = 12;

// Promotion ranks the categories: boolean < integer < floating (semantics: a Python scalar only
// matters when its category ranks above every tensor's).
enum class Category : uint8_t { boolean, integer, floating, complex };

struct DTypeInfo {
    DType dtype = DType::f32;
    std::string_view name;  // NumPy's name, "float32"
    std::string_view tag;  // the graph's text form, "f32"
    uint8_t bytes = 0;
    Category category = Category::floating;
    bool is_signed = true;
};

const DTypeInfo& info(DType dtype);
inline size_t size_of(DType dtype) { return info(dtype).bytes; }
inline bool is_floating(DType dtype) { return info(dtype).category == Category::floating; }

// Accepts NumPy's name or the tag; throws UserError that lists the valid names.
DType dtype_from_name(std::string_view name);

// Result type of an operation on two tensors: equal types stay; float16 counts as float32 when the
// other differs; different categories give float32, or float64 where either is float64; within one
// category the wider type wins. Throws UserError for signed with unsigned integers and for complex
// with anything else.
DType promote(DType a, DType b);

}  // namespace megjit::runtime
