// Random kernels and data for them, each from a seed. Used to compare compilers with the interpreter.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codegen/kernel_ir.h"
#include "runtime/half.h"

namespace megjit::codegen {

using namespace runtime;

inline const std::vector<DType> kScalarDTypes = {DType::f32, DType::f16, DType::bf16, DType::i32, DType::i16,
                                                 DType::i8,  DType::u8,  DType::u16,  DType::b8};

class Random {
public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    int64_t range(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(engine_); }
    template <class T>
    T pick(const std::vector<T>& from) { return from[static_cast<size_t>(range(0, static_cast<int64_t>(from.size()) - 1))]; }

    float f32() {
        static const std::vector<float> special = {0.f, -0.f, 1.f, -1.f, 0.5f, 2.f, 1e-45f, -1e-40f, 65504.f, 65520.f, 1e30f, -3e38f,
                                                   2147483648.f, -2147483648.f, std::numeric_limits<float>::infinity(),
                                                   -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};
        if (range(0, 7) == 0) return pick(special);
        const float scale = std::ldexp(1.f, static_cast<int>(range(-20, 20)));
        return std::uniform_real_distribution<float>(-1, 1)(engine_) * scale;
    }
    int32_t i32() {
        static const std::vector<int32_t> special = {0, 1, -1, 2, INT32_MAX, INT32_MIN, 127, -128, 255, 65535, -32768};
        return range(0, 2) ? static_cast<int32_t>(range(-100, 100)) : range(0, 1) ? pick(special) : static_cast<int32_t>(engine_());
    }
    void fill(DType dtype, void* data, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            const uint32_t bits = [&]() -> uint32_t {
                switch (dtype) {
                    case DType::f32: return std::bit_cast<uint32_t>(f32());
                    case DType::f16: return float_to_half(f32());
                    case DType::bf16: return float_to_bfloat(f32());
                    case DType::b8: return static_cast<uint32_t>(range(0, 1));
                    default: return static_cast<uint32_t>(i32());
                }
            }();
            std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(size_of(dtype)), &bits, size_of(dtype));
        }
    }

private:
    std::mt19937_64 engine_;
};

// A kernel, its launch and its input data.
struct Case {
    KernelIR kernel;
    LaunchShape launch;
    std::vector<std::vector<char>> inputs;

    std::vector<void*> input_pointers() {
        std::vector<void*> pointers;
        for (auto& input : inputs) pointers.push_back(input.data());
        return pointers;
    }
    // What the interpreter stores in each output.
    std::vector<std::vector<char>> expected() {
        std::vector<std::vector<char>> outputs;
        std::vector<void*> pointers;
        for (DType dtype : kernel.outputs) outputs.emplace_back(static_cast<size_t>(launch.numel()) * size_of(dtype) + 1);
        for (auto& output : outputs) pointers.push_back(output.data());
        interpret(kernel, launch, input_pointers().data(), pointers.data());
        return outputs;
    }
};

// Same bits, where any NaN is as good as another.
inline bool same_value(DType dtype, const void* a, const void* b) {
    if (std::memcmp(a, b, size_of(dtype)) == 0) return true;
    uint32_t x = 0, y = 0;
    std::memcpy(&x, a, size_of(dtype));
    std::memcpy(&y, b, size_of(dtype));
    const auto is_nan = [&](uint32_t bits) {
        switch (dtype) {
            case DType::f32: return std::isnan(std::bit_cast<float>(bits));
            case DType::f16: return std::isnan(half_to_float(static_cast<uint16_t>(bits)));
            case DType::bf16: return std::isnan(bfloat_to_float(static_cast<uint16_t>(bits)));
            default: return false;
        }
    };
    return is_nan(x) && is_nan(y);
}

// Draws instructions whose operands have fitting types. No transcendental ones: those are compared one by one.
inline void add_instruction(Random& random, ScalarProgram& program) {
    using enum ScalarOp;
    const auto any = [&] { return Expr(&program, static_cast<int>(random.range(0, program.size() - 1))); };
    const auto f = [&] { return to_type(any(), ScalarType::f32); };
    const auto i = [&] { return to_type(any(), ScalarType::i32); };
    const auto b = [&] { return to_type(any(), ScalarType::b1); };
    switch (random.range(0, 11)) {
        case 0: case 1: make(random.pick<ScalarOp>({add, sub, mul, div, mod, max, min, lt, le, eq, ne}), {f(), f()}); return;
        case 2: make(random.pick<ScalarOp>({neg, ScalarOp::abs, ScalarOp::sqrt, floor, ceil, trunc, round_even, f32_to_i32}), {f()}); return;
        case 3: make(fma, {f(), f(), f()}); return;
        case 4: case 5:
            make(random.pick<ScalarOp>({add, sub, mul, div, mod, max, min, lt, le, eq, ne, bit_and, bit_or, bit_xor, shl, shr, shr_logical}), {i(), i()});
            return;
        case 6: make(random.pick<ScalarOp>({neg, ScalarOp::abs, bit_not, i32_to_f32, bits_i32_to_f32}), {i()}); return;
        case 7: make(random.pick<ScalarOp>({bit_and, bit_or, bit_xor, max, min, lt, le, eq, ne}), {b(), b()}); return;
        case 8: {
            // The bits of a NaN are nobody's promise.
            const Expr x = f();
            make(bits_f32_to_i32, {runtime::select(runtime::eq(x, x), x, 1.5)});
            return;
        }
        case 9: make(select, {b(), f(), f()}); return;
        case 10: make(select, {b(), i(), i()}); return;
        case 11: {
            const DType dtype = random.pick(kScalarDTypes);
            runtime::narrow(to_type(any(), compute_type(dtype)), dtype);
            return;
        }
    }
}

inline Case random_case(uint64_t seed) {
    Random random(seed);
    Case c;
    c.kernel.rank = static_cast<int>(random.range(1, 3));
    const int inputs = static_cast<int>(random.range(1, 4));
    for (int i = 0; i < inputs; ++i) {
        c.kernel.inputs.push_back({random.pick(kScalarDTypes), static_cast<Inner>(random.range(0, 2))});
        c.kernel.program.input(i, compute_type(c.kernel.inputs.back().dtype));
    }
    Expr(&c.kernel.program, 0).constant(ScalarType::f32, random.f32());
    // Both forms of a run are met: short programs and long ones.
    const int size = static_cast<int>(random.range(0, 1) ? random.range(1, 12) : random.range(60, 100));
    while (c.kernel.program.size() < size) add_instruction(random, c.kernel.program);
    for (int k = 0; k < random.range(1, 2); ++k) {
        const DType dtype = random.pick(kScalarDTypes);
        const Expr value(&c.kernel.program, static_cast<int>(random.range(0, c.kernel.program.size() - 1)));
        c.kernel.results.push_back(narrow(to_type(value, compute_type(dtype)), dtype).id());
        c.kernel.outputs.push_back(dtype);
    }
    const int rank = c.kernel.rank;
    for (int axis = 0; axis < rank; ++axis) c.launch.extents.push_back(random.range(axis == rank - 1 ? 0 : 1, axis == rank - 1 ? 69 : 5));
    for (const Operand& input : c.kernel.inputs) {
        int64_t count = 1;
        for (int axis = 0; axis < rank; ++axis) {
            int64_t stride = random.range(0, 1) ? 0 : random.range(1, 80);
            if (axis == rank - 1) stride = input.inner == Inner::contiguous ? 1 : input.inner == Inner::broadcast ? 0 : random.range(2, 5);
            c.launch.strides.push_back(stride);
            count += std::max<int64_t>(c.launch.extents[axis] - 1, 0) * stride;
        }
        c.inputs.emplace_back(static_cast<size_t>(count) * size_of(input.dtype));  // to the byte: a checker sees every overrun
        random.fill(input.dtype, c.inputs.back().data(), count);
    }
    return c;
}

}  // namespace megjit::codegen
