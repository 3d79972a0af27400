#include "runtime/core/dtype.h"

#include "runtime/host/error.h"

namespace megjit::runtime {
namespace {

constexpr DTypeInfo kTable[kDTypeCount] = {
    {DType::f32, "float32", "f32", 4, Category::floating, true},
    {DType::f16, "float16", "f16", 2, Category::floating, true},
    {DType::bf16, "bfloat16", "bf16", 2, Category::floating, true},
    {DType::i32, "int32", "i32", 4, Category::integer, true},
    {DType::i16, "int16", "i16", 2, Category::integer, true},
    {DType::i8, "int8", "i8", 1, Category::integer, true},
    {DType::u8, "uint8", "u8", 1, Category::integer, false},
    {DType::u16, "uint16", "u16", 2, Category::integer, false},
    {DType::b8, "bool", "bool", 1, Category::boolean, false},
    {DType::c64, "complex64", "c64", 8, Category::complex, true},
    {DType::f64, "float64", "f64", 8, Category::floating, true},
    {DType::i64, "int64", "i64", 8, Category::integer, true},
};

}  // namespace

const DTypeInfo& info(DType dtype) { return kTable[static_cast<int>(dtype)]; }

DType dtype_from_name(std::string_view name) {
    std::string valid;
    for (const DTypeInfo& row : kTable) {
        if (row.name == name || row.tag == name) return row.dtype;
        valid += cat(valid.empty() ? "" : ", ", row.name);
    }
    user_error(
        {.what = cat("'", name, "' is not a dtype of a tensor"), .fix = "use one of " + valid},
        ErrorKind::type);
}

DType promote(DType a, DType b) {
    if (a == b) return a;
    if (a == DType::f16) a = DType::f32;
    if (b == DType::f16) b = DType::f32;
    if (a == b) return a;
    const DTypeInfo &left = info(a), &right = info(b);
    if (left.category == Category::complex || right.category == Category::complex)
        user_error({.what = cat("no common dtype for ", left.name, " and ", right.name),
                    .fix = "take F.real and F.imag first"},
                   ErrorKind::type);
    if (left.category != right.category)
        return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
    if (left.is_signed != right.is_signed)
        user_error({.what = cat("no common dtype for ", left.name, " and ", right.name),
                    .why = "one is signed and the other is not",
                    .fix = "convert one of them with astype"},
                   ErrorKind::type);
    return left.bytes >= right.bytes ? a : b;
}

}  // namespace megjit::runtime
