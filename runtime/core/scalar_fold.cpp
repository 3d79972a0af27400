#include "runtime/core/scalar_fold.h"

#include <cmath>
#include <limits>

#include "runtime/host/half.h"

namespace megjit::runtime {
namespace {

float f(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

std::optional<uint32_t> fold_f32(ScalarOp op, float a, float b, float c) {
    switch (op) {
        case ScalarOp::add: return bits_of(a + b);
        case ScalarOp::sub: return bits_of(a - b);
        case ScalarOp::mul: return bits_of(a * b);
        case ScalarOp::div: return bits_of(a / b);
        case ScalarOp::mod: return bits_of(std::fmod(a, b));
        case ScalarOp::neg: return bits_of(a) ^ 0x80000000u;
        case ScalarOp::abs: return bits_of(a) & 0x7FFFFFFFu;
        case ScalarOp::max: return bits_of(a != a ? a : b != b ? b : a < b ? b : a);
        case ScalarOp::min: return bits_of(a != a ? a : b != b ? b : b < a ? b : a);
        case ScalarOp::fma: return bits_of(std::fma(a, b, c));
        case ScalarOp::sqrt: return bits_of(std::sqrt(a));
        case ScalarOp::floor: return bits_of(std::floor(a));
        case ScalarOp::ceil: return bits_of(std::ceil(a));
        case ScalarOp::trunc: return bits_of(std::trunc(a));
        case ScalarOp::round_even: return bits_of(std::nearbyint(a));
        case ScalarOp::lt: return a < b;
        case ScalarOp::le: return a <= b;
        case ScalarOp::eq: return a == b;
        case ScalarOp::ne: return a != b;
        case ScalarOp::f32_to_i32:
            return a >= -0x1p31f && a < 0x1p31f ? static_cast<uint32_t>(static_cast<int32_t>(a))
                                                : 0x80000000u;
        case ScalarOp::bits_f32_to_i32: return bits_of(a);
        default: return {};
    }
}

std::optional<uint32_t> fold_i32(ScalarOp op, uint32_t ua, uint32_t ub) {
    const int64_t a = static_cast<int32_t>(ua), b = static_cast<int32_t>(ub);
    const auto wrap = [](int64_t value) { return static_cast<uint32_t>(value); };
    const int64_t rest = b ? ((a % b) + b) % b : 0;  // sign of the divisor
    switch (op) {
        case ScalarOp::add: return ua + ub;
        case ScalarOp::sub: return ua - ub;
        case ScalarOp::mul: return ua * ub;
        case ScalarOp::div: return wrap(b ? (a - rest) / b : 0);
        case ScalarOp::mod: return wrap(rest);
        case ScalarOp::neg: return 0u - ua;
        case ScalarOp::abs: return wrap(a < 0 ? -a : a);
        case ScalarOp::max: return a < b ? ub : ua;
        case ScalarOp::min: return b < a ? ub : ua;
        case ScalarOp::bit_and: return ua & ub;
        case ScalarOp::bit_or: return ua | ub;
        case ScalarOp::bit_xor: return ua ^ ub;
        case ScalarOp::bit_not: return ~ua;
        case ScalarOp::shl: return ua << (ub & 31);
        case ScalarOp::shr: return wrap(a >> (ub & 31));
        case ScalarOp::shr_logical: return ua >> (ub & 31);
        case ScalarOp::lt: return a < b;
        case ScalarOp::le: return a <= b;
        case ScalarOp::eq: return a == b;
        case ScalarOp::ne: return a != b;
        case ScalarOp::i32_to_f32: return bits_of(static_cast<float>(a));
        case ScalarOp::bits_i32_to_f32: return ua;
        default: return {};
    }
}

std::optional<uint32_t> fold_b1(ScalarOp op, uint32_t a, uint32_t b) {
    switch (op) {
        case ScalarOp::bit_and: return a & b;
        case ScalarOp::bit_or: return a | b;
        case ScalarOp::bit_xor:
        case ScalarOp::ne: return a ^ b;
        case ScalarOp::bit_not: return a ^ 1;
        case ScalarOp::eq: return (a ^ b) ^ 1;
        case ScalarOp::lt: return static_cast<uint32_t>(a < b);
        case ScalarOp::le: return static_cast<uint32_t>(a <= b);
        case ScalarOp::b1_to_i32: return a;
        default: return {};
    }
}

// Looks at operands of an instruction that is not in the program yet.
struct Operands {
    const ScalarProgram& program;
    const ScalarInst& inst;
    const ScalarInst& operator[](int k) const { return program[inst.args[k]]; }
    bool is_constant(int k, double value) const {
        const ScalarInst& arg = (*this)[k];
        if (arg.op != ScalarOp::constant) return false;
        switch (arg.type) {
            case ScalarType::f32: return arg.bits == bits_of(static_cast<float>(value));
            case ScalarType::i32: return static_cast<int32_t>(arg.bits) == value;
            case ScalarType::b1: return arg.bits == (value != 0);
        }
        return false;
    }
};

}  // namespace

uint32_t narrowed(uint32_t bits, DType dtype) {
    switch (dtype) {
        case DType::f16: return bits_of(half_to_float(float_to_half(f(bits))));
        case DType::bf16: return bits_of(bfloat_to_float(float_to_bfloat(f(bits))));
        case DType::i16: return static_cast<uint32_t>(static_cast<int16_t>(bits));
        case DType::i8: return static_cast<uint32_t>(static_cast<int8_t>(bits));
        case DType::u8: return bits & 0xFFu;
        case DType::u16: return bits & 0xFFFFu;
        case DType::f32:
        case DType::i32:
        case DType::b8:
        case DType::c64: return bits;
    }
    return bits;
}

std::optional<uint32_t> fold(const ScalarProgram& program, const ScalarInst& inst) {
    const int arity = arity_of(inst.op);
    if (arity == 0) return {};
    uint32_t v[3] = {0, 0, 0};
    for (int k = 0; k < arity; ++k) {
        if (program[inst.args[k]].op != ScalarOp::constant) return {};
        v[k] = program[inst.args[k]].bits;
    }
    if (inst.op == ScalarOp::select) return v[0] ? v[1] : v[2];
    if (inst.op == ScalarOp::narrow) return narrowed(v[0], inst.narrow_to);
    switch (program[inst.args[0]].type) {
        case ScalarType::f32: return fold_f32(inst.op, f(v[0]), f(v[1]), f(v[2]));
        case ScalarType::i32: return fold_i32(inst.op, v[0], v[1]);
        case ScalarType::b1: return fold_b1(inst.op, v[0], v[1]);
    }
    return {};
}

int identity_of(const ScalarProgram& program, const ScalarInst& inst) {
    const Operands arg{program, inst};
    const auto inner = [&](ScalarOp op) { return arg[0].op == op ? arg[0].args[0] : -1; };
    const bool is_int = inst.type == ScalarType::i32;
    switch (inst.op) {
        case ScalarOp::mul:
            if (arg.is_constant(1, 1)) return inst.args[0];
            return arg.is_constant(0, 1) ? inst.args[1] : -1;
        case ScalarOp::div: return arg.is_constant(1, 1) ? inst.args[0] : -1;
        // x + 0 turns -0 into +0, x + (-0) and x - 0 keep every float.
        case ScalarOp::add:
            if (arg.is_constant(1, is_int ? 0.0 : -0.0)) return inst.args[0];
            return arg.is_constant(0, is_int ? 0.0 : -0.0) ? inst.args[1] : -1;
        case ScalarOp::sub: return arg.is_constant(1, 0.0) ? inst.args[0] : -1;
        case ScalarOp::neg: return inner(ScalarOp::neg);
        case ScalarOp::bit_not: return inner(ScalarOp::bit_not);
        case ScalarOp::abs: return arg[0].op == ScalarOp::abs ? inst.args[0] : -1;
        case ScalarOp::max:
        case ScalarOp::min:
        case ScalarOp::bit_and:
        case ScalarOp::bit_or:
            if (inst.args[0] == inst.args[1]) return inst.args[0];
            if (inst.op == ScalarOp::bit_or && arg.is_constant(1, 0)) return inst.args[0];
            if (inst.op == ScalarOp::bit_and && inst.type == ScalarType::b1 &&
                arg.is_constant(1, 1))
                return inst.args[0];
            return -1;
        case ScalarOp::shl:
        case ScalarOp::shr:
        case ScalarOp::shr_logical: return arg.is_constant(1, 0) ? inst.args[0] : -1;
        case ScalarOp::bits_i32_to_f32: return inner(ScalarOp::bits_f32_to_i32);
        case ScalarOp::bits_f32_to_i32: return inner(ScalarOp::bits_i32_to_f32);
        case ScalarOp::select:
            if (inst.args[1] == inst.args[2]) return inst.args[1];
            if (arg[0].op == ScalarOp::constant) return inst.args[arg[0].bits ? 1 : 2];
            return -1;
        case ScalarOp::narrow:
            return arg[0].op == ScalarOp::narrow && arg[0].narrow_to == inst.narrow_to
                       ? inst.args[0]
                       : -1;
        default: return -1;
    }
}

}  // namespace megjit::runtime
