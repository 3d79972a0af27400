#include "backends/nvrtc/print_scalar.h"

#include <cstdio>

#include "runtime/host/error.h"

namespace megjit::nvrtc {
namespace {

using namespace runtime;
using codegen::loops::Kind;

std::string hex(uint32_t bits) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08Xu", bits);
    return text;
}

// This is compiled without contraction: a * b + c rounds twice.
std::string of_reals(ScalarOp op, bool is_double, const std::string& a, const std::string& b,
                     const std::string& c) {
    const char* const f = is_double ? "" : "f";  // suffix of the functions' names
    switch (op) {
        case ScalarOp::add: return cat(a, " + ", b);
        case ScalarOp::sub: return cat(a, " - ", b);
        case ScalarOp::mul: return cat(a, " * ", b);
        case ScalarOp::div: return cat(a, " / ", b);
        case ScalarOp::mod: return cat("fmod", f, "(", a, ", ", b, ")");
        case ScalarOp::neg: return cat("-", a);
        case ScalarOp::abs: return cat("fabs", f, "(", a, ")");
        case ScalarOp::fma: return cat("__fma", f, "_rn(", a, ", ", b, ", ", c, ")");
        case ScalarOp::sqrt: return cat(is_double ? "__dsqrt_rn(" : "__fsqrt_rn(", a, ")");
        case ScalarOp::floor: return cat("floor", f, "(", a, ")");
        case ScalarOp::ceil: return cat("ceil", f, "(", a, ")");
        case ScalarOp::trunc: return cat("trunc", f, "(", a, ")");
        case ScalarOp::round_even: return cat("rint", f, "(", a, ")");
        case ScalarOp::lt: return cat(a, " < ", b);
        case ScalarOp::le: return cat(a, " <= ", b);
        case ScalarOp::eq: return cat(a, " == ", b);
        case ScalarOp::ne: return cat(a, " != ", b);
        case ScalarOp::bits_f32_to_i32: return cat("__float_as_int(", a, ")");
        default: return "";
    }
}

std::string of_words(ScalarOp op, const std::string& a, const std::string& b) {
    switch (op) {
        case ScalarOp::add: return cat("add_i32(", a, ", ", b, ")");
        case ScalarOp::sub: return cat("sub_i32(", a, ", ", b, ")");
        case ScalarOp::mul: return cat("mul_i32(", a, ", ", b, ")");
        case ScalarOp::div: return cat("floor_div(", a, ", ", b, ")");
        case ScalarOp::max: return cat(a, " < ", b, " ? ", b, " : ", a);
        case ScalarOp::min: return cat(b, " < ", a, " ? ", b, " : ", a);
        case ScalarOp::bit_and: return cat(a, " & ", b);
        case ScalarOp::bit_or: return cat(a, " | ", b);
        case ScalarOp::bit_xor: return cat(a, " ^ ", b);
        case ScalarOp::shl: return cat("(int)((unsigned)", a, " << ", b, ")");
        case ScalarOp::shr: return cat(a, " >> ", b);
        case ScalarOp::shr_logical: return cat("(int)((unsigned)", a, " >> ", b, ")");
        case ScalarOp::lt: return cat(a, " < ", b);
        case ScalarOp::le: return cat(a, " <= ", b);
        case ScalarOp::eq: return cat(a, " == ", b);
        case ScalarOp::ne: return cat(a, " != ", b);
        case ScalarOp::bits_i32_to_f32: return cat("__int_as_float(", a, ")");
        default: return "";
    }
}

std::string of_truths(ScalarOp op, const std::string& a, const std::string& b) {
    switch (op) {
        case ScalarOp::bit_and: return cat(a, " && ", b);
        case ScalarOp::bit_or: return cat(a, " || ", b);
        case ScalarOp::bit_xor: return cat(a, " != ", b);
        default: return "";
    }
}

// Quotients and remainders are unsigned. An index does not overflow, an i64 wraps.
std::string of_indices(ScalarOp op, Kind kind, const std::string& a, const std::string& b) {
    const bool is_index = kind == Kind::index;
    const char* const natural = is_index ? "Count" : "Natural";
    const auto wrapping = [&](const char* sign) {
        if (is_index) return cat(a, sign, b);
        return cat("(long long)(", natural, "(", a, ")", sign, natural, "(", b, "))");
    };
    switch (op) {
        case ScalarOp::add: return wrapping(" + ");
        case ScalarOp::sub: return wrapping(" - ");
        case ScalarOp::mul: return wrapping(" * ");
        case ScalarOp::div: return cat(natural, "(", a, ") / ", natural, "(", b, ")");
        case ScalarOp::mod: return cat(natural, "(", a, ") % ", natural, "(", b, ")");
        case ScalarOp::max: return cat(a, " < ", b, " ? ", b, " : ", a);
        case ScalarOp::min: return cat(b, " < ", a, " ? ", b, " : ", a);
        case ScalarOp::bit_and: return cat(a, " & ", b);
        case ScalarOp::bit_or: return cat(a, " | ", b);
        case ScalarOp::bit_xor: return cat(a, " ^ ", b);
        case ScalarOp::shl: return wrapping(" << ");
        case ScalarOp::shr: return cat(a, " >> ", b);
        case ScalarOp::shr_logical: return cat("(unsigned long long)", a, " >> ", b);
        case ScalarOp::lt: return cat(a, " < ", b);
        case ScalarOp::le: return cat(a, " <= ", b);
        case ScalarOp::eq: return cat(a, " == ", b);
        case ScalarOp::ne: return cat(a, " != ", b);
        default: return "";
    }
}

}  // namespace

std::string_view name_of(Kind kind) {
    switch (kind) {
        case Kind::b1: return "bool";
        case Kind::i8: return "unsigned char";
        case Kind::i16: return "unsigned short";
        case Kind::i32: return "int";
        case Kind::i64: return "long long";
        case Kind::index: return "Index";
        case Kind::f32: return "float";
        case Kind::f64: return "double";
    }
    return "";
}

std::string literal(Kind kind, uint64_t bits) {
    const auto low = static_cast<uint32_t>(bits);
    switch (kind) {
        case Kind::f32: return cat("__uint_as_float(", hex(low), ")");
        case Kind::f64: return cat("__longlong_as_double(", static_cast<int64_t>(bits), "ll)");
        case Kind::i32: return cat("(int)", hex(low));
        case Kind::b1: return bits ? "true" : "false";
        case Kind::i64: return cat("(long long)", bits, "ull");
        default: {
            const auto number = static_cast<int64_t>(bits);
            return number < 0 ? cat("(", number, ")") : cat(number);
        }
    }
}

std::string widened(DType dtype, const std::string& value) {
    switch (dtype) {
        case DType::f16: return cat("from_f16(", value, ")");
        case DType::i16: return cat("(int)(short)", value);
        case DType::i8: return cat("(int)(signed char)", value);
        default: return cat("(int)", value);
    }
}

std::string narrowed(DType dtype, const std::string& value) {
    if (dtype == DType::f16) return cat("to_f16(", value, ")");
    return cat("(", name_of(codegen::loops::storage_of(dtype)), ")", value);
}

std::string bits_as(Kind to, const std::string& value) {
    switch (to) {
        case Kind::f32: return cat("__int_as_float(", value, ")");
        case Kind::i32: return cat("__float_as_int(", value, ")");
        case Kind::f64: return cat("__longlong_as_double(", value, ")");
        default: return cat("__double_as_longlong(", value, ")");
    }
}

std::string expression(ScalarOp op, Kind kind, const std::string* v) {
    if (op == ScalarOp::select) return cat(v[0], " ? ", v[1], " : ", v[2]);
    if (op == ScalarOp::narrow) return widened(DType::f16, narrowed(DType::f16, v[0]));
    const std::string text = [&] {
        switch (kind) {
            case Kind::f32:
            case Kind::f64: return of_reals(op, kind == Kind::f64, v[0], v[1], v[2]);
            case Kind::i32: return of_words(op, v[0], v[1]);
            case Kind::b1: return of_truths(op, v[0], v[1]);
            default: return of_indices(op, kind, v[0], v[1]);
        }
    }();
    if (text.empty()) throw InternalError(cat("NVRTC: ", runtime::name_of(op), " is not legal"));
    return text;
}

}  // namespace megjit::nvrtc
