#include "codegen/legalize.h"

#include <bit>

#include "codegen/expand_math.h"
#include "runtime/core/scalar_math.h"
#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

bool is_legal(DType dtype) { return dtype != DType::bf16 && dtype != DType::b8; }

// Recognises the guarded forms below: another program may look like them by chance, but then it is
// guarded, too.
struct Reader {
    const ScalarProgram& program;

    bool is(int id, ScalarOp op) const { return program[id].op == op; }
    bool is_number(int id, uint64_t bits) const {
        return is(id, ScalarOp::constant) && program[id].bits == bits;
    }
    ScalarType type(int id) const { return program[id].type; }
    int arg(int id, int k) const { return program[id].args[static_cast<size_t>(k)]; }
    // %id is `a op b`, where b is a number.
    bool compares(int id, ScalarOp op, int a, uint64_t bits) const {
        return is(id, op) && arg(id, 0) == a && is_number(arg(id, 1), bits);
    }

    // Is the value known to be neither 0 nor -1: a number, or `b == 0 | b == -1 ? 1 : b`?
    bool divides(int id) const {
        if (is(id, ScalarOp::constant)) return program[id].bits != 0 && program[id].bits != ~0u;
        if (!is(id, ScalarOp::select) || !is(arg(id, 0), ScalarOp::bit_or)) return false;
        const int special = arg(id, 0), b = arg(id, 2);
        return is_number(arg(id, 1), 1) && compares(arg(special, 0), ScalarOp::eq, b, 0) &&
               compares(arg(special, 1), ScalarOp::eq, b, ~0u);
    }
    // Is the value known to fit the integer: `-2^31 <= a & a < 2^31 ? a : 0`?
    bool is_in_range(int id, ScalarType integer) const {
        const double limit = integer == ScalarType::i64 ? 0x1p63 : 0x1p31;
        const auto bits = [&](double value) {
            return type(id) == ScalarType::f64
                       ? std::bit_cast<uint64_t>(value)
                       : uint64_t{std::bit_cast<uint32_t>(static_cast<float>(value))};
        };
        if (!is(id, ScalarOp::select) || !is(arg(id, 0), ScalarOp::bit_and)) return false;
        const int fits = arg(id, 0), least = arg(fits, 0), a = arg(id, 1);
        return is(least, ScalarOp::le) && is_number(arg(least, 0), bits(-limit)) &&
               arg(least, 1) == a && compares(arg(fits, 1), ScalarOp::lt, a, bits(limit)) &&
               is_number(arg(id, 2), 0);
    }
    // Is the value known to be less than the number of bits: a number, or `n & 31`?
    bool is_shift(int id) const {
        const auto bits = static_cast<uint64_t>(bits_in(type(id)));
        return is(id, ScalarOp::constant)
                   ? program[id].bits < bits
                   : is(id, ScalarOp::bit_and) && is_number(arg(id, 1), bits - 1);
    }
};

bool is_legal(const ScalarProgram& program, const ScalarInst& inst, NativeOps native) {
    const ScalarType type = arity_of(inst.op) > 0 ? program[inst.args[0]].type : inst.type;
    const Reader read{program};
    switch (inst.op) {
        case ScalarOp::max:
        case ScalarOp::min: return is_integer(type);
        case ScalarOp::neg:
        case ScalarOp::abs: return is_real(type);
        case ScalarOp::mod: return type != ScalarType::i32;
        case ScalarOp::div: return type != ScalarType::i32 || read.divides(inst.args[1]);
        case ScalarOp::bit_not: return false;
        case ScalarOp::shl:
        case ScalarOp::shr:
        case ScalarOp::shr_logical: return read.is_shift(inst.args[1]);
        case ScalarOp::lt:
        case ScalarOp::le:
        case ScalarOp::eq:
        case ScalarOp::ne: return type != ScalarType::b1;
        case ScalarOp::cast: {
            if (!is_real(type) || !is_integer(inst.type)) return true;
            const bool is_native =
                native.f32_to_i32 && type == ScalarType::f32 && inst.type == ScalarType::i32;
            return is_native || read.is_in_range(inst.args[0], inst.type);
        }
        case ScalarOp::narrow: return inst.narrow_to == DType::f16;
        default: return !is_transcendental(inst.op);
    }
}

Expr as_i32(Expr x) { return make(ScalarOp::bits_f32_to_i32, {x}); }
Expr as_f32(Expr x) { return make(ScalarOp::bits_i32_to_f32, {x}); }
Expr logical_shr(Expr x, double count) {
    return make(ScalarOp::shr_logical, {x, x.constant(count)});
}

// NaN of either operand wins, and among equal ones the first: `a < b ? b : a` gives a when a is
// NaN.
Expr larger(Expr a, Expr b, Expr b_is_better) {
    const Expr best = select(b_is_better, b, a);
    const ScalarInst& second = (*b.program())[b.id()];
    const bool never_nan =
        second.op == ScalarOp::constant &&
        (second.type == ScalarType::f64 ? second.bits << 1 <= uint64_t{0x7FF} << 53
                                        : (second.bits & 0x7FFFFFFF) <= 0x7F800000);
    return never_nan ? best : select(ne(b, b), b, best);
}

// Rounds to the nearest, half to even; a NaN stays NaN. It computes on integers, for the
// instruction of AVX512_BF16 takes denormals for zero.
Expr rounded_to_bf16(Expr x) {
    const Expr bits = as_i32(x), odd = logical_shr(bits, 16) & 1.0;
    const Expr rounded = select(ne(x, x), bits | 0x00400000, bits + (odd + 0x7FFF));
    return as_f32(rounded & -65536.0);
}

// Replaces the upper bits by the sign or zeros.
Expr narrowed_integer(Expr x, DType dtype) {
    const double gone = 32 - 8 * static_cast<double>(size_of(dtype));
    if (dtype == DType::u8 || dtype == DType::u16)
        return x & (dtype == DType::u8 ? 255.0 : 65535.0);
    return shr(shl(x, gone), gone);
}

Expr narrowed(Expr x, DType dtype) {
    switch (dtype) {
        case DType::f16: return narrow(x, dtype);
        case DType::bf16: return rounded_to_bf16(x);
        case DType::i16:
        case DType::i8:
        case DType::u16:
        case DType::u8: return narrowed_integer(x, dtype);
        case DType::f32:
        case DType::i32:
        case DType::f64:
        case DType::i64:
        case DType::b8:
        case DType::c64: break;
    }
    return x;
}

Expr legal_real(const ScalarInst& inst, Expr a, Expr b) {
    switch (inst.op) {
        case ScalarOp::max: return larger(a, b, a < b);
        case ScalarOp::min: return larger(a, b, b < a);
        case ScalarOp::cast: {  // out of range: the least integer
            const double limit = inst.type == ScalarType::i64 ? 0x1p63 : 0x1p31;
            const Expr fits = make(ScalarOp::le, {a.constant(-limit), a}) & (a < limit);
            const Expr whole = to_type(select(fits, a, 0.0), inst.type);
            return select(fits, whole, whole.constant(-limit));
        }
        default: return {};
    }
}

// Rounds towards minus infinity; a divisor of 0 gives 0, and the least integer / -1 wraps.
Expr divided(Expr a, Expr b) {
    if (Reader{*b.program()}.divides(b.id())) return a / b;
    const Expr by_zero = eq(b, 0.0), by_minus_one = eq(b, -1.0);
    const Expr quotient =
        make(ScalarOp::div, {a, select(by_zero | by_minus_one, b.constant(1), b)});
    return select(by_zero, a.constant(0), select(by_minus_one, a.constant(0) - a, quotient));
}

Expr legal_integer(ScalarOp op, Expr a, Expr b) {
    switch (op) {
        case ScalarOp::div: return divided(a, b);
        case ScalarOp::mod: return select(eq(b, 0.0), a.constant(0), a - divided(a, b) * b);
        case ScalarOp::neg: return a.constant(0) - a;
        case ScalarOp::abs: return max(a, a.constant(0) - a);  // the least integer stays
        case ScalarOp::bit_not: return a ^ -1.0;
        case ScalarOp::shl:
        case ScalarOp::shr:
        case ScalarOp::shr_logical:
            return make(op, {a, b & static_cast<double>(bits_in(b.type()) - 1)});
        default: return {};
    }
}

Expr legal_b1(ScalarOp op, Expr a, Expr b) {
    const auto negated = [](Expr x) { return x ^ 1.0; };
    switch (op) {
        case ScalarOp::bit_not: return negated(a);
        case ScalarOp::max: return a | b;
        case ScalarOp::min: return a & b;
        case ScalarOp::ne: return a ^ b;
        case ScalarOp::eq: return negated(a ^ b);
        case ScalarOp::lt: return negated(a) & b;
        case ScalarOp::le: return negated(a) | b;
        default: return {};
    }
}

// The replacement of an illegal instruction.
Expr legal(ScalarProgram& program, const ScalarInst& inst) {
    const Expr a(&program, inst.args[0]), b(&program, inst.args[1]);
    if (inst.op == ScalarOp::narrow) return narrowed(a, inst.narrow_to);
    switch (a.type()) {
        case ScalarType::f32:
        case ScalarType::f64: return legal_real(inst, a, b);
        case ScalarType::i32:
        case ScalarType::i64: return legal_integer(inst.op, a, b);
        case ScalarType::b1: return legal_b1(inst.op, a, b);
    }
    return {};
}

class Legalizer {
public:
    Legalizer(const KernelIR& kernel, NativeOps native)
        : old_(kernel), native_(native), kernel_(kernel) {
        kernel_.program = {};
    }

    KernelIR run() {
        for (const ScalarInst& inst : old_.program.insts()) renamed_.push_back(legal_id(inst));
        std::vector<int> roots;
        for (size_t k = 0; k < kernel_.results.size(); ++k) roots.push_back(stored(k));
        for (Reduction& reduction : kernel_.reductions) roots.push_back(reduced(reduction));
        kernel_.program.keep_only(roots);
        auto root = roots.begin();
        for (int& result : kernel_.results) result = *root++;
        for (Reduction& reduction : kernel_.reductions) reduction.arg = *root++;
        for (Operand& input : kernel_.inputs) input.dtype = legal_dtype(input.dtype);
        for (Operand& output : kernel_.outputs) output.dtype = legal_dtype(output.dtype);
        return std::move(kernel_);
    }

private:
    static DType legal_dtype(DType dtype) {
        return dtype == DType::bf16 ? DType::u16 : dtype == DType::b8 ? DType::u8 : dtype;
    }
    Expr value(int old) { return {&kernel_.program, renamed_[static_cast<size_t>(old)]}; }

    int legal_id(ScalarInst inst) {
        if (inst.op == ScalarOp::input) return input(inst).id();
        const bool stays = is_legal(old_.program, inst, native_);
        for (int k = 0; k < arity_of(inst.op); ++k) inst.args[k] = value(inst.args[k]).id();
        return stays ? kernel_.program.emit(inst) : legal(kernel_.program, inst).id();
    }

    Expr input(const ScalarInst& inst) {
        const auto read = [&](ScalarType type) {
            return Expr(&kernel_.program, kernel_.program.input(static_cast<int>(inst.bits), type));
        };
        if (inst.bits >= old_.inputs.size()) {
            if (inst.type != ScalarType::b1) return read(inst.type);
            reduced(old_.reductions[inst.bits - old_.inputs.size()]);  // its argument comes first
            // The largest of no booleans is INT32_MIN, the smallest INT32_MAX.
            const Expr whole = read(ScalarType::i32);
            return whole.constant(0) < whole;
        }
        const DType dtype = old_.inputs[inst.bits].dtype;
        if (is_legal(dtype)) return read(inst.type);
        const Expr bits = read(ScalarType::i32);
        return dtype == DType::bf16 ? as_f32(shl(bits, 16.0)) : ne(bits, 0.0);
    }

    // The value that output k stores. It is narrowed, so that storing it as bits of bfloat16 loses
    // nothing.
    int stored(size_t k) {
        const Expr result = value(old_.results[k]);
        const DType dtype = old_.outputs[k].dtype;
        if (is_legal(dtype)) return result.id();
        return (dtype == DType::bf16 ? logical_shr(as_i32(result), 16)
                                     : to_type(result, ScalarType::i32))
            .id();
    }
    int reduced(const Reduction& reduction) {
        const Expr arg = value(reduction.arg);
        return (arg.type() == ScalarType::b1 ? to_type(arg, ScalarType::i32) : arg).id();
    }

    const KernelIR& old_;
    const NativeOps native_;
    KernelIR kernel_;
    std::vector<int> renamed_;
};

}  // namespace

KernelIR legalize(const KernelIR& kernel, NativeOps native) {
    if (illegal_in(kernel, native).empty()) return kernel;
    return Legalizer(expand_math(kernel), native).run();
}

std::string illegal_in(const KernelIR& kernel, NativeOps native) {
    for (const auto* operands : {&kernel.inputs, &kernel.outputs})
        for (const Operand& operand : *operands)
            if (!is_legal(operand.dtype)) return cat("an operand is ", info(operand.dtype).tag);
    for (int id = 0; id < kernel.program.size(); ++id)
        if (!is_legal(kernel.program, kernel.program[id], native))
            return cat("%", id, " (", name_of(kernel.program[id].op), ")");
    for (const Reduction& reduction : kernel.reductions)
        if (kernel.program[reduction.arg].type == ScalarType::b1)
            return cat("a reduction of %", reduction.arg, ", which is b1");
    return "";
}

}  // namespace megjit::codegen
