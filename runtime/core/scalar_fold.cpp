#include "runtime/core/scalar_fold.h"

#include <cmath>
#include <type_traits>

#include "runtime/core/number_to_integer.h"
#include "runtime/host/error.h"
#include "runtime/host/half.h"

namespace megjit::runtime {
namespace {

// Converts a number to the bits of a constant, and back.
template <class T>
uint64_t bits_of(T value) {
    if constexpr (sizeof(T) == 4) return std::bit_cast<uint32_t>(value);
    else return std::bit_cast<uint64_t>(value);
}
template <class T>
T number_of(uint64_t bits) {
    if constexpr (sizeof(T) == 4) return std::bit_cast<T>(static_cast<uint32_t>(bits));
    else return std::bit_cast<T>(bits);
}

template <class Real>
uint64_t cast_to(ScalarType type, Real a) {
    switch (type) {
        case ScalarType::f32: return bits_of(static_cast<float>(a));
        case ScalarType::f64: return bits_of(static_cast<double>(a));
        case ScalarType::b1: break;  // casts to b1 use `ne`
        case ScalarType::i32:
            if constexpr (std::is_integral_v<Real>) return static_cast<uint32_t>(a);
            else return static_cast<uint32_t>(number_to_integer(static_cast<double>(a)));
        case ScalarType::i64:
            if constexpr (std::is_integral_v<Real>)
                return static_cast<uint64_t>(static_cast<int64_t>(a));
            else return static_cast<uint64_t>(number_to_integer<int64_t>(static_cast<double>(a)));
    }
    throw InternalError("a cast to b1");
}

template <class Real>
std::optional<uint64_t> fold_real(const ScalarInst& inst, Real a, Real b, Real c) {
    constexpr uint64_t kSign = uint64_t{1} << (sizeof(Real) * 8 - 1);
    switch (inst.op) {
        case ScalarOp::add: return bits_of(a + b);
        case ScalarOp::sub: return bits_of(a - b);
        case ScalarOp::mul: return bits_of(a * b);
        case ScalarOp::div: return bits_of(a / b);
        case ScalarOp::mod: return bits_of(std::fmod(a, b));
        case ScalarOp::neg: return bits_of(a) ^ kSign;
        case ScalarOp::abs: return bits_of(a) & (kSign - 1);
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
        case ScalarOp::cast: return cast_to(inst.type, a);
        case ScalarOp::bits_f32_to_i32: return bits_of(a);
        default: return {};
    }
}

template <class Int>
std::optional<uint64_t> fold_integer(const ScalarInst& inst, Int a, Int b) {
    using Natural = std::make_unsigned_t<Int>;
    constexpr Natural kShifts = sizeof(Int) * 8 - 1;
    const auto ua = static_cast<Natural>(a), ub = static_cast<Natural>(b);
    // a % -1 is 0; the processor would trap on the quotient where a is the least number.
    const Int rest = b == 0 || b == -1 ? 0 : a % b;
    const Int modulo = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;  // sign of the divisor
    switch (inst.op) {
        case ScalarOp::add: return static_cast<Natural>(ua + ub);
        case ScalarOp::sub: return static_cast<Natural>(ua - ub);
        case ScalarOp::mul: return static_cast<Natural>(ua * ub);
        case ScalarOp::div:
            if (b == 0 || b == -1) return b == 0 ? 0 : static_cast<Natural>(0 - ua);
            return static_cast<Natural>((a - rest) / b - (modulo != rest));
        case ScalarOp::mod: return static_cast<Natural>(modulo);
        case ScalarOp::neg: return static_cast<Natural>(0 - ua);
        case ScalarOp::abs: return a < 0 ? static_cast<Natural>(0 - ua) : ua;
        case ScalarOp::max: return a < b ? ub : ua;
        case ScalarOp::min: return b < a ? ub : ua;
        case ScalarOp::bit_and: return ua & ub;
        case ScalarOp::bit_or: return ua | ub;
        case ScalarOp::bit_xor: return ua ^ ub;
        case ScalarOp::bit_not: return static_cast<Natural>(~ua);
        case ScalarOp::shl: return static_cast<Natural>(ua << (ub & kShifts));
        case ScalarOp::shr: return static_cast<Natural>(a >> (ub & kShifts));
        case ScalarOp::shr_logical: return ua >> (ub & kShifts);
        case ScalarOp::lt: return a < b;
        case ScalarOp::le: return a <= b;
        case ScalarOp::eq: return a == b;
        case ScalarOp::ne: return a != b;
        case ScalarOp::cast: return cast_to(inst.type, a);
        case ScalarOp::bits_i32_to_f32: return ua;
        default: return {};
    }
}

std::optional<uint64_t> fold_b1(ScalarOp op, uint64_t a, uint64_t b) {
    switch (op) {
        case ScalarOp::bit_and: return a & b;
        case ScalarOp::bit_or: return a | b;
        case ScalarOp::bit_xor:
        case ScalarOp::ne: return a ^ b;
        case ScalarOp::bit_not: return a ^ 1;
        case ScalarOp::eq: return (a ^ b) ^ 1;
        case ScalarOp::lt: return static_cast<uint64_t>(a < b);
        case ScalarOp::le: return static_cast<uint64_t>(a <= b);
        case ScalarOp::cast: return a;
        default: return {};
    }
}

// The operands of an instruction that is not in the program yet.
struct Operands {
    const ScalarProgram& program;
    const ScalarInst& inst;
    const ScalarInst& operator[](int k) const { return program[inst.args[k]]; }
    bool is_constant(int k, double value) const {
        const ScalarInst& arg = (*this)[k];
        if (arg.op != ScalarOp::constant) return false;
        switch (arg.type) {
            case ScalarType::f32: return arg.bits == bits_of(static_cast<float>(value));
            case ScalarType::f64: return arg.bits == bits_of(value);
            case ScalarType::i32: return static_cast<int32_t>(arg.bits) == value;
            case ScalarType::i64:
                return static_cast<int64_t>(arg.bits) == static_cast<int64_t>(value);
            case ScalarType::b1: return arg.bits == (value != 0);
        }
        return false;
    }
};

}  // namespace

uint32_t narrowed(uint32_t bits, DType dtype) {
    const auto f = number_of<float>(bits);
    switch (dtype) {
        case DType::f16: return std::bit_cast<uint32_t>(half_to_float(float_to_half(f)));
        case DType::bf16: return std::bit_cast<uint32_t>(bfloat_to_float(float_to_bfloat(f)));
        case DType::i16: return static_cast<uint32_t>(static_cast<int16_t>(bits));
        case DType::i8: return static_cast<uint32_t>(static_cast<int8_t>(bits));
        case DType::u8: return bits & 0xFFu;
        case DType::u16: return bits & 0xFFFFu;
        case DType::f32:
        case DType::i32:
        case DType::b8:
        case DType::c64:
        case DType::f64:
        case DType::i64: return bits;
    }
    return bits;
}

std::optional<uint64_t> fold(const ScalarProgram& program, const ScalarInst& inst) {
    const int arity = arity_of(inst.op);
    if (arity == 0) return {};
    uint64_t v[3] = {0, 0, 0};
    for (int k = 0; k < arity; ++k) {
        if (program[inst.args[k]].op != ScalarOp::constant) return {};
        v[k] = program[inst.args[k]].bits;
    }
    if (inst.op == ScalarOp::select) return v[0] ? v[1] : v[2];
    if (inst.op == ScalarOp::narrow) return narrowed(static_cast<uint32_t>(v[0]), inst.narrow_to);
    const auto real = [&]<class T>(T) {
        return fold_real(inst, number_of<T>(v[0]), number_of<T>(v[1]), number_of<T>(v[2]));
    };
    const auto integer = [&]<class T>(T) {
        return fold_integer(inst, number_of<T>(v[0]), number_of<T>(v[1]));
    };
    switch (program[inst.args[0]].type) {
        case ScalarType::f32: return real(float{});
        case ScalarType::f64: return real(double{});
        case ScalarType::i32: return integer(int32_t{});
        case ScalarType::i64: return integer(int64_t{});
        case ScalarType::b1: return fold_b1(inst.op, v[0], v[1]);
    }
    return {};
}

int identity_of(const ScalarProgram& program, const ScalarInst& inst) {
    const Operands arg{program, inst};
    const auto inner = [&](ScalarOp op) { return arg[0].op == op ? arg[0].args[0] : -1; };
    const bool is_int = is_integer(inst.type);
    switch (inst.op) {
        case ScalarOp::mul:
            if (arg.is_constant(1, 1)) return inst.args[0];
            return arg.is_constant(0, 1) ? inst.args[1] : -1;
        case ScalarOp::div: return arg.is_constant(1, 1) ? inst.args[0] : -1;
        // x + 0 turns -0 into +0, but x + (-0) and x - 0 leave every float as it is.
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
        case ScalarOp::cast: return arg[0].type == inst.type ? inst.args[0] : -1;
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
