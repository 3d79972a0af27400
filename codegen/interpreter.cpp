// The oracle. One element after the other, one instruction after the other, by the words of
// scalar.h and row_plan.h and nothing else: it shares no code with the eager kernels or with any
// compiler.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "codegen/interpret_row.h"
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
        const RowPlan plan = row_plan_of(kernel_);
        over(0, static_cast<size_t>(kernel_.kept()), [&] { run_row(plan); });
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

    void evaluate_all() {
        for (int id = 0; id < kernel_.program.size(); ++id) evaluate_one(id);
    }
    void evaluate_one(int id) {
        const ScalarInst& inst = kernel_.program[id];
        if (inst.op == ScalarOp::constant) values_[id] = inst.bits;
        else if (inst.op != ScalarOp::input) values_[id] = evaluate(kernel_.program, inst, values_);
        else if (const int r = reduction_read_by(kernel_, id); r >= 0) values_[id] = reduced_[r];
        else values_[id] = read_input(inst.bits);
    }

    void run_row(const RowPlan& plan) {
        for (const RowWalk& walk : plan.walks) {
            std::fill(index_.begin() + kernel_.kept(), index_.end(), 0);
            for (const int id : walk.row) evaluate_one(id);
            if (walk.walks()) run_walk(walk, plan.lanes);
        }
        std::fill(index_.begin() + kernel_.kept(), index_.end(), 0);
        for (const size_t k : plan.outputs) store_one(k);
    }

    void run_walk(const RowWalk& walk, int lanes) {
        std::vector<RowReduction> reductions;
        for (const Reduced& reduced : walk.reductions)
            reductions.emplace_back(reduced, kernel_.program[reduced.arg].type, lanes);
        int64_t place = 0;
        over(static_cast<size_t>(kernel_.kept()), rank_, [&] {
            for (const int id : walk.elements) evaluate_one(id);
            for (const size_t k : walk.outputs) store_one(k);
            for (size_t r = 0; r < reductions.size(); ++r)
                reductions[r].take(values_[walk.reductions[r].arg], index_.back(), place);
            ++place;
        });
        for (size_t r = 0; r < reductions.size(); ++r)
            reduced_[walk.reductions[r].reduction] =
                reductions[r].result(static_cast<double>(place));
    }

    void store_one(size_t k) {
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
    std::vector<int64_t> gather_strides_;
};

}  // namespace

void interpret(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs,
               void* const* outputs) {
    Interpreter(kernel, launch, inputs, outputs).run();
}

}  // namespace megjit::codegen
