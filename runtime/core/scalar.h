// runtime/core/scalar.h -- scalar programs: what an element-wise op does to one element. They are
// the single definition from which the eager kernels (backends/cpu/vm), the generated kernels of
// every backend and the interpreter (codegen/interpreter) come.
//
// Values are computed as f32, f64, i32, i64 or b1. float16 and bfloat16 are widened to f32 when
// loaded, small integers to i32; `narrow` rounds (or wraps, for small integers) a value to what its
// storage type can hold, so that a fused kernel gives the bits that separate kernels would give. No
// instruction is contracted or reordered.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/dtype.h"

namespace megjit::runtime {

enum class ScalarType : uint8_t { f32, i32, b1, f64, i64 };
ScalarType compute_type(DType dtype);  // UserError for c64
std::string_view name_of(ScalarType type);
constexpr bool is_real(ScalarType type) {
    return type == ScalarType::f32 || type == ScalarType::f64;
}
constexpr bool is_integer(ScalarType type) {
    return type == ScalarType::i32 || type == ScalarType::i64;
}
constexpr int bits_in(ScalarType type) {  // b1 has 1
    return type == ScalarType::b1                               ? 1
           : type == ScalarType::f64 || type == ScalarType::i64 ? 64
                                                                : 32;
}

// X(name, arity): the only list of scalar instructions. Result type = type of the first operand,
// except: comparisons give b1; casts what they name; `select` the type of its second operand.
// clang-format off
#define MEGJIT_SCALAR_OPS(X)                                                                       \
    X(input, 0) X(constant, 0)                                                                     \
    /* arithmetic on reals and integers, which wrap. div, mod: IEEE and C fmod; integers floor and sign of divisor, 0 for a zero divisor */ \
    X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(mod, 2) X(neg, 1) X(abs, 1)                          \
    /* NaN of either operand wins, as NumPy's maximum and minimum */                               \
    X(max, 2) X(min, 2)                                                                            \
    /* reals only; fma rounds once; round is half to even */                                       \
    X(fma, 3) X(sqrt, 1) X(floor, 1) X(ceil, 1) X(trunc, 1) X(round_even, 1)                       \
    /* reals only: f32 expanded by scalar_math.h: at most 2 ulp, erfc_of_halves and gelu_slope_of_halves 2**-14; sin, cos, tan reduced for every finite argument; f64 by the C library, eagerly on CPUs */ \
    X(exp, 1) X(expm1, 1) X(log, 1) X(log1p, 1) X(sin, 1) X(cos, 1) X(tan, 1) X(asin, 1) X(acos, 1) \
    X(atan, 1) X(atan2, 2) X(sinh, 1) X(cosh, 1) X(tanh, 1) X(asinh, 1) X(acosh, 1) X(atanh, 1)    \
    X(erf, 1) X(erfc, 1) X(erfc_of_halves, 1) X(gelu_slope_of_halves, 1) X(erfinv, 1) X(pow, 2) X(lgamma, 1) X(digamma, 1)                         \
    /* bits: integers and b1 (logical); shifts of integers, the count taken modulo their bits; shr is arithmetic, shr_logical fills with 0 */ \
    X(bit_and, 2) X(bit_or, 2) X(bit_xor, 2) X(bit_not, 1) X(shl, 2) X(shr, 2) X(shr_logical, 2)   \
    /* comparisons give b1; NaN compares false, and true under ne */                               \
    X(lt, 2) X(le, 2) X(eq, 2) X(ne, 2)                                                            \
    X(select, 3)                                                                                   \
    /* to the type of the result, never b1. Reals are rounded to the nearest, or truncated to integers: NaN */ \
    /* and what is out of range give the least; integers are cut; of b1 only to integers */        \
    X(cast, 1)                                                                                     \
    X(bits_f32_to_i32, 1) X(bits_i32_to_f32, 1)                                                    \
    X(narrow, 1)
// clang-format on

enum class ScalarOp : uint8_t {
#define MEGJIT_X(name, arity) name,
    MEGJIT_SCALAR_OPS(MEGJIT_X)
#undef MEGJIT_X
};
std::string_view name_of(ScalarOp op);
int arity_of(ScalarOp op);

struct ScalarInst {
    ScalarOp op = ScalarOp::input;
    ScalarType type = ScalarType::f32;  // type of the result
    DType narrow_to = DType::f32;  // `narrow` only
    uint64_t bits = 0;  // `constant`: the value's bits; `input`: its index
    std::array<int32_t, 3> args{-1, -1, -1};
    bool operator==(const ScalarInst&) const = default;
};

// Instructions in SSA form, operands before users. `emit` folds constants by the oracle's rules
// where that is exact, applies exact identities (x*1, select of equal arms, double negation), and
// finds equal instructions, so that programs stay small and comparable.
class ScalarProgram {
public:
    ScalarProgram() = default;
    // Holds exactly these instructions, nothing folded: for readers of the text form.
    explicit ScalarProgram(std::vector<ScalarInst> insts) : insts_(std::move(insts)) {}
    int emit(ScalarInst inst);
    int input(int index, ScalarType type);
    int constant(ScalarType type, uint64_t bits);
    const ScalarInst& operator[](int id) const { return insts_[static_cast<size_t>(id)]; }
    int size() const { return static_cast<int>(insts_.size()); }
    std::span<const ScalarInst> insts() const { return insts_; }
    // Appends `other` with its inputs replaced by `args`; returns the new id of other's `result`.
    int inline_program(const ScalarProgram& other, int result, std::span<const int> args);
    // Keeps only what `results` need, and renumbers them.
    void keep_only(std::vector<int>& results);
    // Is instruction `id` a max or a min, or a `select` between the two values that its condition
    // compares?
    bool is_extremum(int id) const;
    bool operator==(const ScalarProgram&) const = default;

private:
    std::vector<ScalarInst> insts_;
};

// A value under construction. Operators read like arithmetic; both operands share one program.
// A C++ number next to an Expr becomes a constant of the Expr's type.
class Expr {
public:
    Expr() = default;
    Expr(ScalarProgram* program, int id) : program_(program), id_(id) {}
    int id() const { return id_; }
    ScalarProgram* program() const { return program_; }
    ScalarType type() const { return (*program_)[id_].type; }
    bool valid() const { return program_ != nullptr; }
    Expr constant(double value) const;  // a constant of this expression's type
    Expr constant(ScalarType type, double value) const;

private:
    ScalarProgram* program_ = nullptr;
    int id_ = -1;
};

Expr make(ScalarOp op, std::initializer_list<Expr> args);
Expr narrow(Expr x, DType dtype);
Expr to_type(Expr x, ScalarType type);  // numeric cast (b1: x != 0)

#define MEGJIT_UNARY(name) \
    inline Expr name(Expr x) { return make(ScalarOp::name, {x}); }
MEGJIT_UNARY(abs)
MEGJIT_UNARY(sqrt)
MEGJIT_UNARY(floor)
MEGJIT_UNARY(ceil)
MEGJIT_UNARY(trunc)
MEGJIT_UNARY(round_even)
MEGJIT_UNARY(exp)
MEGJIT_UNARY(expm1)
MEGJIT_UNARY(log)
MEGJIT_UNARY(log1p)
MEGJIT_UNARY(sin)
MEGJIT_UNARY(cos)
MEGJIT_UNARY(tan)
MEGJIT_UNARY(asin)
MEGJIT_UNARY(acos)
MEGJIT_UNARY(atan)
MEGJIT_UNARY(sinh)
MEGJIT_UNARY(cosh)
MEGJIT_UNARY(tanh)
MEGJIT_UNARY(asinh)
MEGJIT_UNARY(acosh)
MEGJIT_UNARY(atanh)
MEGJIT_UNARY(erf)
MEGJIT_UNARY(erfc)
MEGJIT_UNARY(erfc_of_halves)
MEGJIT_UNARY(gelu_slope_of_halves)
MEGJIT_UNARY(erfinv)
MEGJIT_UNARY(lgamma)
MEGJIT_UNARY(digamma)
#undef MEGJIT_UNARY
Expr promote_number(Expr like, double value);
#define MEGJIT_BINARY(fn, op) \
    inline Expr fn(Expr a, Expr b) { return make(ScalarOp::op, {a, b}); } \
    inline Expr fn(Expr a, double b) { return fn(a, promote_number(a, b)); } \
    inline Expr fn(double a, Expr b) { return fn(promote_number(b, a), b); }
MEGJIT_BINARY(operator+, add)
MEGJIT_BINARY(operator-, sub)
MEGJIT_BINARY(operator*, mul)
MEGJIT_BINARY(operator/, div)
MEGJIT_BINARY(mod, mod)
MEGJIT_BINARY(max, max)
MEGJIT_BINARY(min, min)
MEGJIT_BINARY(pow, pow)
MEGJIT_BINARY(atan2, atan2)
MEGJIT_BINARY(operator&, bit_and)
MEGJIT_BINARY(operator|, bit_or)
MEGJIT_BINARY(operator^, bit_xor)
MEGJIT_BINARY(shl, shl)
MEGJIT_BINARY(shr, shr)
MEGJIT_BINARY(operator<, lt)
MEGJIT_BINARY(operator<=, le)
MEGJIT_BINARY(eq, eq)
MEGJIT_BINARY(ne, ne)
#undef MEGJIT_BINARY
inline Expr operator>(Expr a, Expr b) { return b < a; }
inline Expr operator>(Expr a, double b) { return promote_number(a, b) < a; }
inline Expr operator>=(Expr a, Expr b) { return b <= a; }
inline Expr operator>=(Expr a, double b) { return promote_number(a, b) <= a; }
inline Expr operator-(Expr x) { return make(ScalarOp::neg, {x}); }
inline Expr operator!(Expr x) { return make(ScalarOp::bit_not, {x}); }
inline Expr fma(Expr a, Expr b, Expr c) { return make(ScalarOp::fma, {a, b, c}); }
inline Expr select(Expr c, Expr a, Expr b) { return make(ScalarOp::select, {c, a, b}); }
inline Expr select(Expr c, Expr a, double b) { return select(c, a, promote_number(a, b)); }
inline Expr select(Expr c, double a, Expr b) { return select(c, promote_number(b, a), b); }

// d(result)/d(input k) times `seed`, by the derivative rule of each instruction; an invalid Expr
// when the result does not depend on that input. Inputs keep their indices.
Expr derivative(Expr result, int input_index, Expr seed);

std::string to_string(const ScalarProgram& program);  // "%2: f32 = mul %0 %1"; a line each

}  // namespace megjit::runtime
