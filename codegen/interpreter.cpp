// The oracle. One element after the other, one instruction after the other, by the words of
// scalar.h and nothing else: it shares no code with the eager kernels or with any compiler.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "codegen/kernel_ir.h"
#include "runtime/half.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

template <class T>
T read(const void* data, int64_t index) {
    T value;
    std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    return value;
}

template <class T>
void write(void* data, int64_t index, T value) {
    std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &value,
                sizeof(T));
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

uint32_t load(DType dtype, const void* data, int64_t index) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return read<uint32_t>(data, index);
        case DType::f16: return bits_of(half_to_float(read<uint16_t>(data, index)));
        case DType::bf16: return bits_of(bfloat_to_float(read<uint16_t>(data, index)));
        case DType::i16: return static_cast<uint32_t>(read<int16_t>(data, index));
        case DType::i8: return static_cast<uint32_t>(read<int8_t>(data, index));
        case DType::u8: return read<uint8_t>(data, index);
        case DType::u16: return read<uint16_t>(data, index);
        case DType::b8: return read<uint8_t>(data, index) != 0;
        case DType::c64: break;
    }
    throw InternalError("interpreter: complex64 has no scalar");
}

void store(DType dtype, void* data, int64_t index, uint32_t bits) {
    switch (dtype) {
        case DType::f32:
        case DType::i32: return write(data, index, bits);
        case DType::f16: return write(data, index, float_to_half(float_of(bits)));
        case DType::bf16: return write(data, index, float_to_bfloat(float_of(bits)));
        case DType::i16:
        case DType::u16: return write(data, index, static_cast<uint16_t>(bits));
        case DType::i8:
        case DType::u8:
        case DType::b8: return write(data, index, static_cast<uint8_t>(bits));
        case DType::c64: break;
    }
    throw InternalError("interpreter: complex64 has no scalar");
}

uint32_t narrow_bits(DType dtype, uint32_t bits) {
    uint32_t cell = 0;
    store(dtype, &cell, 0, bits);
    return load(dtype, &cell, 0);
}

// psi(x): recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18),
// reflection (6.3.7) below 0. NaN at 0, -1, -2, ... but -inf and inf at +0 and -0, as SciPy.
double digamma_f64(double x) {
    if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
    if (x < 0) {
        if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
        const double part = x - std::floor(x);
        return digamma_f64(1 - x) - M_PI / std::tan(M_PI * part);
    }
    double sum = 0;
    for (; x < 10; x += 1) sum -= 1 / x;
    const double r = 1 / (x * x);
    return sum + std::log(x) - 0.5 / x -
           r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132)))));
}

// The root y of erf(y) = x by Newton's method on erfc, which keeps its digits near |x| = 1.
double erfinv_f64(double x) {
    if (x != x || std::fabs(x) > 1) return std::numeric_limits<double>::quiet_NaN();
    if (std::fabs(x) == 1) return std::copysign(std::numeric_limits<double>::infinity(), x);
    if (std::fabs(x) < 1e-9) return x * (std::sqrt(M_PI) / 2);
    const double tail = 1 - std::fabs(x);
    double y = std::fabs(x) < 0.7 ? std::fabs(x) * 0.9 : std::sqrt(-std::log(tail));
    for (int i = 0; i < 60; ++i) {
        const double error = std::fabs(x) < 0.5 ? std::fabs(x) - std::erf(y) : std::erfc(y) - tail;
        const double step = error * (std::sqrt(M_PI) / 2) * std::exp(y * y);
        y += std::clamp(step, -0.5, 0.5);
        if (std::fabs(step) < 1e-16 * y) break;
    }
    return std::copysign(y, x);
}

double lgamma_f64(double x) {
    int sign = 0;
    return ::lgamma_r(x, &sign);
}

float transcendental(ScalarOp op, double a, double b) {
    switch (op) {
        case ScalarOp::exp: return static_cast<float>(std::exp(a));
        case ScalarOp::expm1: return static_cast<float>(std::expm1(a));
        case ScalarOp::log: return static_cast<float>(std::log(a));
        case ScalarOp::log1p: return static_cast<float>(std::log1p(a));
        case ScalarOp::sin: return static_cast<float>(std::sin(a));
        case ScalarOp::cos: return static_cast<float>(std::cos(a));
        case ScalarOp::tan: return static_cast<float>(std::tan(a));
        case ScalarOp::asin: return static_cast<float>(std::asin(a));
        case ScalarOp::acos: return static_cast<float>(std::acos(a));
        case ScalarOp::atan: return static_cast<float>(std::atan(a));
        case ScalarOp::atan2: return static_cast<float>(std::atan2(a, b));
        case ScalarOp::sinh: return static_cast<float>(std::sinh(a));
        case ScalarOp::cosh: return static_cast<float>(std::cosh(a));
        case ScalarOp::tanh: return static_cast<float>(std::tanh(a));
        case ScalarOp::asinh: return static_cast<float>(std::asinh(a));
        case ScalarOp::acosh: return static_cast<float>(std::acosh(a));
        case ScalarOp::atanh: return static_cast<float>(std::atanh(a));
        case ScalarOp::erf: return static_cast<float>(std::erf(a));
        case ScalarOp::erfc: return static_cast<float>(std::erfc(a));
        case ScalarOp::erfinv: return static_cast<float>(erfinv_f64(a));
        case ScalarOp::pow: return static_cast<float>(std::pow(a, b));
        case ScalarOp::lgamma: return static_cast<float>(lgamma_f64(a));
        case ScalarOp::digamma: return static_cast<float>(digamma_f64(a));
        default: throw InternalError(cat("interpreter: unknown instruction ", name_of(op)));
    }
}

uint32_t eval_f32(ScalarOp op, float a, float b, float c) {
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
        default: return bits_of(transcendental(op, a, b));
    }
}

// Everything in 64 bits, so that nothing overflows before it wraps.
uint32_t eval_i32(ScalarOp op, uint32_t ua, uint32_t ub) {
    const int64_t a = static_cast<int32_t>(ua), b = static_cast<int32_t>(ub);
    const auto floor_div = [&] { return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0)); };
    int64_t result = 0;
    switch (op) {
        case ScalarOp::add: result = a + b; break;
        case ScalarOp::sub: result = a - b; break;
        case ScalarOp::mul: result = a * b; break;
        case ScalarOp::div: result = floor_div(); break;
        case ScalarOp::mod: result = b == 0 ? 0 : a - floor_div() * b; break;
        case ScalarOp::neg: result = -a; break;
        case ScalarOp::abs: result = std::abs(a); break;
        case ScalarOp::max: result = std::max(a, b); break;
        case ScalarOp::min: result = std::min(a, b); break;
        case ScalarOp::bit_and: result = a & b; break;
        case ScalarOp::bit_or: result = a | b; break;
        case ScalarOp::bit_xor: result = a ^ b; break;
        case ScalarOp::bit_not: result = ~a; break;
        case ScalarOp::shl: return ua << (ub % 32);
        case ScalarOp::shr: result = a >> (ub % 32); break;
        case ScalarOp::shr_logical: return ua >> (ub % 32);
        case ScalarOp::lt: result = a < b; break;
        case ScalarOp::le: result = a <= b; break;
        case ScalarOp::eq: result = a == b; break;
        case ScalarOp::ne: result = a != b; break;
        case ScalarOp::i32_to_f32: return bits_of(static_cast<float>(static_cast<int32_t>(ua)));
        case ScalarOp::bits_i32_to_f32: return ua;
        default: throw InternalError(cat("interpreter: ", name_of(op), " does not take i32"));
    }
    return static_cast<uint32_t>(result);
}

uint32_t eval_b1(ScalarOp op, bool a, bool b) {
    switch (op) {
        case ScalarOp::bit_and:
        case ScalarOp::min: return a && b;
        case ScalarOp::bit_or:
        case ScalarOp::max: return a || b;
        case ScalarOp::bit_xor:
        case ScalarOp::ne: return a != b;
        case ScalarOp::eq: return a == b;
        case ScalarOp::bit_not: return !a;
        case ScalarOp::lt: return !a && b;
        case ScalarOp::le: return !a || b;
        case ScalarOp::b1_to_i32: return a;
        default: throw InternalError(cat("interpreter: ", name_of(op), " does not take b1"));
    }
}

uint32_t evaluate(const ScalarProgram& program, const ScalarInst& inst,
                  const std::vector<uint32_t>& values) {
    uint32_t v[3] = {0, 0, 0};
    for (int k = 0; k < arity_of(inst.op); ++k) v[k] = values[inst.args[k]];
    if (inst.op == ScalarOp::select) return v[0] ? v[1] : v[2];
    if (inst.op == ScalarOp::narrow) return narrow_bits(inst.narrow_to, v[0]);
    switch (program[inst.args[0]].type) {
        case ScalarType::f32:
            return eval_f32(inst.op, float_of(v[0]), float_of(v[1]), float_of(v[2]));
        case ScalarType::i32: return eval_i32(inst.op, v[0], v[1]);
        case ScalarType::b1: return eval_b1(inst.op, v[0], v[1]);
    }
    return 0;
}

// --- reductions -------------------------------------------------------------------------------

// One reduction of one row, in double precision (or exactly, in integers).
class Accumulator {
public:
    Accumulator(Reduce kind, ScalarType type) : kind_(kind), type_(type) {}

    void add(uint32_t bits) {
        if (type_ == ScalarType::f32) add_float(float_of(bits));
        else
            add_int(type_ == ScalarType::b1 ? static_cast<int64_t>(bits != 0)
                                            : static_cast<int32_t>(bits));
        ++count_;
    }

    uint32_t result() const {
        if (kind_ == Reduce::argmax || kind_ == Reduce::argmin)
            return static_cast<uint32_t>(place_);
        if (type_ != ScalarType::f32)
            return count_ ? static_cast<uint32_t>(whole_) : start_of_int();
        switch (kind_) {
            case Reduce::mean: return bits_of(static_cast<float>(mean_));
            case Reduce::variance:
                return bits_of(static_cast<float>(squares_ / static_cast<double>(count_)));
            case Reduce::prod: return bits_of(static_cast<float>(count_ ? real_ : 1));
            case Reduce::max:
                return bits_of(
                    static_cast<float>(count_ ? real_ : -std::numeric_limits<double>::infinity()));
            case Reduce::min:
                return bits_of(
                    static_cast<float>(count_ ? real_ : std::numeric_limits<double>::infinity()));
            default: return bits_of(static_cast<float>(real_));
        }
    }

private:
    uint32_t start_of_int() const {
        const bool is_bool = type_ == ScalarType::b1;
        switch (kind_) {
            case Reduce::prod: return 1;
            case Reduce::max: return is_bool ? 0 : static_cast<uint32_t>(INT32_MIN);
            case Reduce::min: return is_bool ? 1 : static_cast<uint32_t>(INT32_MAX);
            default: return 0;
        }
    }
    bool wants_larger() const { return kind_ == Reduce::max || kind_ == Reduce::argmax; }

    void add_float(double x) {
        switch (kind_) {
            case Reduce::sum: real_ += x; return;
            case Reduce::prod: real_ = count_ ? real_ * x : x; return;
            case Reduce::mean:
            case Reduce::variance: {  // Welford 1962
                const double step = x - mean_;
                mean_ += step / static_cast<double>(count_ + 1);
                squares_ += step * (x - mean_);
                return;
            }
            default: break;
        }
        if (count_ && (real_ != real_ || (x == x && !(wants_larger() ? x > real_ : x < real_))))
            return;
        real_ = x;
        place_ = count_;
    }

    void add_int(int64_t x) {
        switch (kind_) {
            case Reduce::sum: whole_ = static_cast<uint32_t>(whole_ + x); return;
            case Reduce::prod: whole_ = static_cast<uint32_t>(count_ ? whole_ * x : x); return;
            default: break;
        }
        if (count_ && !(wants_larger() ? x > whole_ : x < whole_)) return;
        whole_ = x;
        place_ = count_;
    }

    Reduce kind_;
    ScalarType type_;
    int64_t count_ = 0, place_ = 0, whole_ = 0;
    double real_ = 0, mean_ = 0, squares_ = 0;
};

// --- the walk ---------------------------------------------------------------------------------

class Interpreter {
public:
    Interpreter(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs,
                void* const* outputs)
        : kernel_(kernel),
          launch_(launch),
          inputs_(inputs),
          outputs_(outputs),
          rank_(launch.extents.size()),
          index_(rank_, 0),
          values_(static_cast<size_t>(kernel.program.size())),
          reduced_(kernel.reductions.size()) {
        size_t next = (kernel.inputs.size() + kernel.outputs.size()) * rank_;
        for (const Operand& input : kernel.inputs)
            gather_strides_.push_back(input.by >= 0 ? launch.strides[next++] : 0);
    }

    void run() {
        if (kernel_.reduced == 0) {
            int64_t element = 0;
            over(0, rank_, [&] {
                evaluate_all();
                for (size_t k = 0; k < kernel_.outputs.size(); ++k)
                    store(kernel_.outputs[k].dtype, outputs_[k], element,
                          values_[kernel_.results[k]]);
                ++element;
            });
            return;
        }
        const auto kept = static_cast<size_t>(kernel_.kept());
        over(0, kept, [&] {
            known_ = 0;
            for (size_t r = 0; r < kernel_.reductions.size(); ++r) {
                const Reduction& reduction = kernel_.reductions[r];
                Accumulator total(reduction.kind, kernel_.program[reduction.arg].type);
                over(kept, rank_, [&] {
                    evaluate_all();
                    total.add(values_[reduction.arg]);
                });
                reduced_[r] = total.result();
                known_ = r + 1;
            }
            over(kept, rank_, [&] { write(false); });
            std::fill(index_.begin() + kernel_.kept(), index_.end(), 0);
            write(true);
        });
    }

private:
    template <class Body>
    void over(size_t first, size_t last, const Body& body) {
        std::fill(index_.begin() + static_cast<ptrdiff_t>(first),
                  index_.begin() + static_cast<ptrdiff_t>(last), 0);
        for (size_t axis = first; axis < last; ++axis)
            if (launch_.extents[axis] == 0) return;
        for (;;) {
            body();
            size_t axis = last;
            for (; axis-- > first;) {
                if (++index_[axis] < launch_.extents[axis]) break;
                index_[axis] = 0;
            }
            if (axis + 1 == first || first == last) return;
        }
    }

    int64_t offset_of(size_t operand) const {
        int64_t offset = 0;
        for (size_t axis = 0; axis < rank_; ++axis)
            offset += index_[axis] * launch_.strides[operand * rank_ + axis];
        return offset;
    }

    uint32_t read_input(size_t i) const {
        const Operand& input = kernel_.inputs[i];
        int64_t offset = offset_of(i);
        if (input.is_offset) return static_cast<uint32_t>(offset);
        if (input.by >= 0)
            offset += static_cast<int32_t>(load(DType::i32, inputs_[input.by],
                                                offset_of(static_cast<size_t>(input.by)))) *
                      gather_strides_[i];
        return load(input.dtype, inputs_[i], offset);
    }

    // Reductions that are not known yet read as 0; nobody looks at what follows from them.
    void evaluate_all() {
        for (int id = 0; id < kernel_.program.size(); ++id) {
            const ScalarInst& inst = kernel_.program[id];
            if (inst.op == ScalarOp::constant) values_[id] = inst.bits;
            else if (inst.op != ScalarOp::input)
                values_[id] = evaluate(kernel_.program, inst, values_);
            else if (inst.bits < kernel_.inputs.size()) values_[id] = read_input(inst.bits);
            else
                values_[id] = inst.bits - kernel_.inputs.size() < known_
                                  ? reduced_[inst.bits - kernel_.inputs.size()]
                                  : 0;
        }
    }

    void write(bool per_row) {
        evaluate_all();
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            if (kernel_.outputs[k].per_row == per_row)
                store(kernel_.outputs[k].dtype, outputs_[k], offset_of(kernel_.inputs.size() + k),
                      values_[kernel_.results[k]]);
    }

    const KernelIR& kernel_;
    const LaunchShape& launch_;
    void* const* inputs_;
    void* const* outputs_;
    size_t rank_;
    std::vector<int64_t> index_;
    std::vector<uint32_t> values_;
    std::vector<uint32_t> reduced_;  // of the row at hand
    size_t known_ = 0;  // how many of them
    std::vector<int64_t> gather_strides_;
};

}  // namespace

void interpret(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs,
               void* const* outputs) {
    Interpreter(kernel, launch, inputs, outputs).run();
}

}  // namespace megjit::codegen
