#include "backends/nvrtc/print_scalar.h"

#include <cstdio>

#include "runtime/error.h"

namespace megjit::nvrtc {
namespace {

using namespace runtime;

std::string hex(uint32_t bits) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08Xu", bits);
    return text;
}

std::string constant(const ScalarInst& inst) {
    switch (inst.type) {
        case ScalarType::f32: return cat("__uint_as_float(", hex(inst.bits), ")");
        case ScalarType::i32: return cat("(int)", hex(inst.bits));
        case ScalarType::b1: return inst.bits ? "true" : "false";
    }
    return "";
}

// Contraction is off when this is compiled: a * b + c rounds twice.
std::string f32(ScalarOp op, const std::string& a, const std::string& b, const std::string& c) {
    switch (op) {
        case ScalarOp::add: return cat(a, " + ", b);
        case ScalarOp::sub: return cat(a, " - ", b);
        case ScalarOp::mul: return cat(a, " * ", b);
        case ScalarOp::div: return cat(a, " / ", b);
        case ScalarOp::mod: return cat("fmodf(", a, ", ", b, ")");
        case ScalarOp::neg: return cat("-", a);
        case ScalarOp::abs: return cat("fabsf(", a, ")");
        case ScalarOp::fma: return cat("__fmaf_rn(", a, ", ", b, ", ", c, ")");
        case ScalarOp::sqrt: return cat("__fsqrt_rn(", a, ")");
        case ScalarOp::floor: return cat("floorf(", a, ")");
        case ScalarOp::ceil: return cat("ceilf(", a, ")");
        case ScalarOp::trunc: return cat("truncf(", a, ")");
        case ScalarOp::round_even: return cat("rintf(", a, ")");
        case ScalarOp::lt: return cat(a, " < ", b);
        case ScalarOp::le: return cat(a, " <= ", b);
        case ScalarOp::eq: return cat(a, " == ", b);
        case ScalarOp::ne: return cat(a, " != ", b);
        case ScalarOp::f32_to_i32: return cat("(int)", a);
        case ScalarOp::bits_f32_to_i32: return cat("__float_as_int(", a, ")");
        default: return "";
    }
}

std::string i32(ScalarOp op, const std::string& a, const std::string& b) {
    switch (op) {
        case ScalarOp::add: return cat("add_i32(", a, ", ", b, ")");
        case ScalarOp::sub: return cat("sub_i32(", a, ", ", b, ")");
        case ScalarOp::mul: return cat("mul_i32(", a, ", ", b, ")");
        case ScalarOp::div: return cat("floor_div(", a, ", ", b, ")");
        case ScalarOp::max: return cat("max_i32(", a, ", ", b, ")");
        case ScalarOp::min: return cat("min_i32(", a, ", ", b, ")");
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
        case ScalarOp::i32_to_f32: return cat("(float)", a);
        case ScalarOp::bits_i32_to_f32: return cat("__int_as_float(", a, ")");
        default: return "";
    }
}

std::string b1(ScalarOp op, const std::string& a, const std::string& b) {
    switch (op) {
        case ScalarOp::bit_and: return cat(a, " && ", b);
        case ScalarOp::bit_or: return cat(a, " || ", b);
        case ScalarOp::bit_xor: return cat(a, " != ", b);
        case ScalarOp::b1_to_i32: return cat("(int)", a);
        default: return "";
    }
}

}  // namespace

std::string_view type_name(ScalarType type) {
    switch (type) {
        case ScalarType::f32: return "float";
        case ScalarType::i32: return "int";
        case ScalarType::b1: return "bool";
    }
    return "";
}

std::string_view storage_name(DType dtype) {
    switch (dtype) {
        case DType::f32: return "float";
        case DType::i32: return "int";
        case DType::f16:
        case DType::u16: return "unsigned short";
        case DType::i16: return "short";
        case DType::i8: return "signed char";
        case DType::u8: return "unsigned char";
        case DType::bf16:
        case DType::b8:
        case DType::c64: break;
    }
    throw InternalError(cat("NVRTC: ", info(dtype).tag, " is not legal"));
}

std::string widened(DType dtype, const std::string& value) {
    return dtype == DType::f16 ? cat("from_f16(", value, ")") : value;
}

std::string narrowed(DType dtype, const std::string& value) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return value;
        case DType::f16: return cat("to_f16(", value, ")");
        default: return cat("(", storage_name(dtype), ")", value);
    }
}

std::string expression(const ScalarProgram& program, int id) {
    const ScalarInst& inst = program[id];
    if (inst.op == ScalarOp::constant) return constant(inst);
    std::string v[3];
    for (int k = 0; k < arity_of(inst.op); ++k) v[k] = cat("v", inst.args[k]);
    if (inst.op == ScalarOp::select) return cat(v[0], " ? ", v[1], " : ", v[2]);
    if (inst.op == ScalarOp::narrow) return widened(DType::f16, narrowed(DType::f16, v[0]));
    std::string text;
    switch (program[inst.args[0]].type) {
        case ScalarType::f32: text = f32(inst.op, v[0], v[1], v[2]); break;
        case ScalarType::i32: text = i32(inst.op, v[0], v[1]); break;
        case ScalarType::b1: text = b1(inst.op, v[0], v[1]); break;
    }
    if (text.empty()) throw InternalError(cat("NVRTC: ", name_of(inst.op), " is not legal"));
    return text;
}

}  // namespace megjit::nvrtc
