// Random kernels and data for them, each from a seed. Used to compare compilers with the
// interpreter.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "codegen/kernel_ir.h"
#include "runtime/host/half.h"

namespace megjit::codegen {

using namespace runtime;

inline const std::vector<DType> kScalarDTypes = {DType::f32, DType::f16, DType::bf16, DType::i32,
                                                 DType::i16, DType::i8,  DType::u8,   DType::u16,
                                                 DType::b8,  DType::f64, DType::i64};

class Random {
public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    int64_t range(int64_t lo, int64_t hi) {
        return std::uniform_int_distribution<int64_t>(lo, hi)(engine_);
    }
    template <class T>
    T pick(const std::vector<T>& from) {
        return from[static_cast<size_t>(range(0, static_cast<int64_t>(from.size()) - 1))];
    }

    float f32() {
        static const std::vector<float> special = {0.f,
                                                   -0.f,
                                                   1.f,
                                                   -1.f,
                                                   0.5f,
                                                   2.f,
                                                   1e-45f,
                                                   -1e-40f,
                                                   65504.f,
                                                   65520.f,
                                                   1e30f,
                                                   -3e38f,
                                                   2147483648.f,
                                                   -2147483648.f,
                                                   std::numeric_limits<float>::infinity(),
                                                   -std::numeric_limits<float>::infinity(),
                                                   std::numeric_limits<float>::quiet_NaN()};
        if (range(0, 7) == 0) return pick(special);
        const float scale = std::ldexp(1.f, static_cast<int>(range(-20, 20)));
        return std::uniform_real_distribution<float>(-1, 1)(engine_) * scale;
    }
    int32_t i32() {
        static const std::vector<int32_t> special = {0,   1,    -1,  2,     INT32_MAX, INT32_MIN,
                                                     127, -128, 255, 65535, -32768};
        return range(0, 2)   ? static_cast<int32_t>(range(-100, 100))
               : range(0, 1) ? pick(special)
                             : static_cast<int32_t>(engine_());
    }
    double f64() { return range(0, 2) ? f32() : f32() * (1 + std::ldexp(f32(), -30)); }
    int64_t i64() {
        static const std::vector<int64_t> special = {INT64_MAX, INT64_MIN, int64_t{1} << 32, -1};
        return range(0, 1) ? i32() : range(0, 1) ? pick(special) : static_cast<int64_t>(engine_());
    }
    void fill(DType dtype, void* data, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            const uint64_t bits = [&]() -> uint64_t {
                switch (dtype) {
                    case DType::f64: return std::bit_cast<uint64_t>(f64());
                    case DType::i64: return static_cast<uint64_t>(i64());
                    case DType::f32: return std::bit_cast<uint32_t>(f32());
                    case DType::f16: return float_to_half(f32());
                    case DType::bf16: return float_to_bfloat(f32());
                    case DType::b8: return static_cast<uint32_t>(range(0, 1));
                    default: return static_cast<uint32_t>(i32());
                }
            }();
            std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(size_of(dtype)), &bits,
                        size_of(dtype));
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

    int64_t stride(size_t operand, size_t axis) const {
        return launch.strides[operand * launch.extents.size() + axis];
    }
    size_t output_bytes(size_t k) const {
        const size_t size = size_of(kernel.outputs[k].dtype);
        if (kernel.reduced == 0) return static_cast<size_t>(launch.numel()) * size;
        int64_t count = 1;
        for (size_t axis = 0; axis < launch.extents.size(); ++axis)
            count += (launch.extents[axis] - 1) * stride(kernel.inputs.size() + k, axis);
        return static_cast<size_t>(count) * size;
    }
    // Counts the elements of input i, which lies in memory, up to the last one that is read.
    int64_t input_elements(size_t i) const {
        int64_t count = 1;
        for (size_t axis = 0; axis < launch.extents.size(); ++axis)
            count += (launch.extents[axis] - 1) * stride(i, axis);
        size_t gather = (kernel.inputs.size() + kernel.outputs.size()) * launch.extents.size();
        for (size_t before = 0; before < i; ++before) gather += kernel.inputs[before].by >= 0;
        return kernel.inputs[i].by < 0 ? count : count + 4 * launch.strides[gather];
    }
    std::vector<void*> input_pointers() {
        std::vector<void*> pointers;
        for (auto& input : inputs) pointers.push_back(input.data());
        return pointers;
    }
    // What the interpreter stores in each output, in front of one byte that nobody writes.
    std::vector<std::vector<char>> expected() {
        std::vector<std::vector<char>> outputs;
        std::vector<void*> pointers;
        for (size_t k = 0; k < kernel.outputs.size(); ++k)
            outputs.emplace_back(output_bytes(k) + 1);
        for (auto& output : outputs) pointers.push_back(output.data());
        interpret(kernel, launch, input_pointers().data(), pointers.data());
        return outputs;
    }
};

// Same bits, where any NaN is as good as another.
inline bool same_value(DType dtype, const void* a, const void* b) {
    if (std::memcmp(a, b, size_of(dtype)) == 0) return true;
    uint64_t x = 0, y = 0;
    std::memcpy(&x, a, size_of(dtype));
    std::memcpy(&y, b, size_of(dtype));
    const auto is_nan = [&](uint64_t bits) {
        switch (dtype) {
            case DType::f64: return std::isnan(std::bit_cast<double>(bits));
            case DType::f32: return std::isnan(std::bit_cast<float>(static_cast<uint32_t>(bits)));
            case DType::f16: return std::isnan(half_to_float(static_cast<uint16_t>(bits)));
            case DType::bf16: return std::isnan(bfloat_to_float(static_cast<uint16_t>(bits)));
            default: return false;
        }
    };
    return is_nan(x) && is_nan(y);
}

// Draws instructions whose operands have fitting types. No transcendental ones: those are compared
// one by one.
inline void add_instruction(Random& random, ScalarProgram& program) {
    using enum ScalarOp;
    constexpr ScalarType kReals[] = {ScalarType::f32, ScalarType::f32, ScalarType::f64};
    constexpr ScalarType kIntegers[] = {ScalarType::i32, ScalarType::i32, ScalarType::i64};
    const ScalarType real = kReals[random.range(0, 2)], integer = kIntegers[random.range(0, 2)];
    const auto any = [&] {
        return Expr(&program, static_cast<int>(random.range(0, program.size() - 1)));
    };
    const auto f = [&] { return to_type(any(), real); };
    const auto i = [&] { return to_type(any(), integer); };
    const auto b = [&] { return to_type(any(), ScalarType::b1); };
    switch (random.range(0, 11)) {
        case 0:
        case 1:
            make(random.pick<ScalarOp>({add, sub, mul, div, mod, max, min, lt, le, eq, ne}),
                 {f(), f()});
            return;
        case 2:
            make(random.pick<ScalarOp>(
                     {neg, ScalarOp::abs, ScalarOp::sqrt, floor, ceil, trunc, round_even}),
                 {f()});
            return;
        case 3: make(fma, {f(), f(), f()}); return;
        case 4:
        case 5:
            make(random.pick<ScalarOp>({add, sub, mul, div, mod, max, min, lt, le, eq, ne, bit_and,
                                        bit_or, bit_xor, shl, shr, shr_logical}),
                 {i(), i()});
            return;
        case 6:
            if (integer == ScalarType::i32 && random.range(0, 3) == 0) make(bits_i32_to_f32, {i()});
            else make(random.pick<ScalarOp>({neg, ScalarOp::abs, bit_not}), {i()});
            return;
        case 7:
            make(random.pick<ScalarOp>({bit_and, bit_or, bit_xor, max, min, lt, le, eq, ne}),
                 {b(), b()});
            return;
        case 8: {
            // The bits of a NaN are nobody's promise.
            const Expr x = to_type(any(), ScalarType::f32);
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
        c.kernel.inputs.push_back(
            {random.pick(kScalarDTypes), static_cast<Inner>(random.range(0, 2))});
        c.kernel.program.input(i, compute_type(c.kernel.inputs.back().dtype));
    }
    Expr(&c.kernel.program, 0).constant(ScalarType::f32, random.f32());
    // Both forms of a run are met: short programs and long ones.
    const int size =
        static_cast<int>(random.range(0, 1) ? random.range(1, 12) : random.range(60, 100));
    while (c.kernel.program.size() < size) add_instruction(random, c.kernel.program);
    for (int k = 0; k < random.range(1, 2); ++k) {
        const DType dtype = random.pick(kScalarDTypes);
        const Expr value(&c.kernel.program,
                         static_cast<int>(random.range(0, c.kernel.program.size() - 1)));
        c.kernel.results.push_back(narrow(to_type(value, compute_type(dtype)), dtype).id());
        c.kernel.outputs.push_back({dtype});
    }
    const int rank = c.kernel.rank;
    for (int axis = 0; axis < rank; ++axis)
        c.launch.extents.push_back(
            random.range(axis == rank - 1 ? 0 : 1, axis == rank - 1 ? 69 : 5));
    for (const Operand& input : c.kernel.inputs) {
        int64_t count = 1;
        for (int axis = 0; axis < rank; ++axis) {
            int64_t stride = random.range(0, 1) ? 0 : random.range(1, 80);
            if (axis == rank - 1)
                stride = input.inner == Inner::contiguous  ? 1
                         : input.inner == Inner::broadcast ? 0
                                                           : random.range(2, 5);
            c.launch.strides.push_back(stride);
            count += std::max<int64_t>(c.launch.extents[axis] - 1, 0) * stride;
        }
        c.inputs.emplace_back(static_cast<size_t>(count) *
                              size_of(input.dtype));  // to the byte: a checker sees every overrun
        random.fill(input.dtype, c.inputs.back().data(), count);
    }
    for (size_t k = 0; k < c.kernel.outputs.size(); ++k)
        for (int axis = 0; axis < rank; ++axis)
            c.launch.strides.push_back(std::accumulate(c.launch.extents.begin() + axis + 1,
                                                       c.launch.extents.end(), int64_t{1},
                                                       std::multiplies<>()));
    return c;
}

// --- kernels with reductions ------------------------------------------------------------------

// Values stay small, so that orders of addition differ by little.
inline Expr small_step(Random& random, ScalarProgram& program, Expr a, Expr b) {
    (void)program;
    switch (random.range(0, 7)) {
        case 0: return a + b * 0.25;
        case 1: return a - b;
        case 2: return a * b * 0.5;
        case 3: return max(a, b);
        case 4: return runtime::select(a < b, a, b * 0.5);
        case 5: return abs(a);
        case 6: return fma(a, b, a.constant(0.125));
        default: return exp(min(a, 1.0)) * 0.5;
    }
}

// Its operands hold small numbers.
inline Case bound_and_filled(KernelSpec spec, Random& random) {
    Case c;
    BoundKernel bound = bind(std::move(spec));
    c.kernel = std::move(bound.kernel);
    c.launch = std::move(bound.launch);
    for (size_t i = 0; i < memory_inputs(c.kernel); ++i) {
        const Operand& input = c.kernel.inputs[i];
        const int64_t count = c.input_elements(i);
        auto& bytes = c.inputs.emplace_back(static_cast<size_t>(count) * size_of(input.dtype));
        for (int64_t e = 0; e < count; ++e) {
            const float x = static_cast<float>(random.range(-512, 512)) / 256;
            const uint64_t bits =
                input.dtype == DType::f64   ? std::bit_cast<uint64_t>(static_cast<double>(x))
                : input.dtype == DType::i32 ? static_cast<uint32_t>(random.range(0, 4))
                : input.dtype == DType::i8  ? static_cast<uint32_t>(random.range(0, 255))
                : input.dtype == DType::f32 ? std::bit_cast<uint32_t>(x)
                : input.dtype == DType::f16 ? float_to_half(x)
                                            : float_to_bfloat(x);
            std::memcpy(bytes.data() + static_cast<size_t>(e) * size_of(input.dtype), &bits,
                        size_of(input.dtype));
        }
    }
    return c;
}

// Products of matrices, with some arithmetic on the factors and on the result.
inline Case random_contraction_case(uint64_t seed, int64_t largest = 70) {
    Random random(seed);
    KernelSpec spec;
    const int64_t batches = random.range(0, 2) ? 1 : random.range(2, 3),
                  m = random.range(1, random.range(0, 1) ? largest : 9),
                  n = random.range(1, largest),
                  k = random.range(1, random.range(0, 3) ? largest : 4 * largest);
    spec.extents = {batches, m, n, k};
    spec.reduced = 1;
    ScalarProgram& program = spec.program;
    const std::vector<DType> floats = {DType::f32, DType::f32, DType::f16, DType::bf16};
    const auto input = [&](DType dtype, std::vector<int64_t> strides) {
        spec.inputs.push_back({.dtype = dtype, .strides = std::move(strides)});
        const int id = program.input(static_cast<int>(spec.inputs.size()) - 1, compute_type(dtype));
        return to_type(Expr(&program, id), ScalarType::f32);
    };
    const bool turned = random.range(0, 3) == 0, of_all = random.range(0, 1);
    Expr a = input(random.pick(floats), {m * k, turned ? 1 : k, 0, turned ? m : 1}),
         b = random.range(0, 3)
                 ? input(random.pick(floats), {of_all ? 0 : k * n, 0, 1, n})
                 : input(random.range(0, 1) ? DType::i8 : random.pick(floats), {0, 0, k, 1});
    std::vector<Expr> rows = {input(DType::f32, {0, 0, 1, 0}), input(DType::f32, {0, 1, 0, 0}),
                              input(random.pick(floats), {m * n, n, 1, 0})};
    if (random.range(0, 2) == 0) a = small_step(random, program, a, a);
    if (random.range(0, 2) == 0) a = a * rows[1];
    if (random.range(0, 2) == 0) b = small_step(random, program, b, b);
    if (random.range(0, 2) == 0) b = b + rows[0];
    const int inputs = static_cast<int>(spec.inputs.size());
    for (int r = 0; r < random.range(1, 2); ++r) {
        spec.reductions.push_back({Reduce::dot, (r ? (b * 0.5) * a : a * b).id()});
        rows.push_back(Expr(&program, program.input(inputs + r, ScalarType::f32)) * (1.0 / 16));
    }
    for (int out = 0; out < random.range(1, 2); ++out) {
        Expr value = rows.back();
        for (int step = 0; step < random.range(0, 4); ++step)
            value = small_step(random, program, value, random.pick(rows));
        const DType dtype = random.pick(floats);
        spec.results.push_back(narrow(value, dtype).id());
        spec.outputs.push_back({.dtype = dtype, .strides = {m * n, n, 1, 0}});
    }
    spec.packs = random.range(0, 1);
    return bound_and_filled(std::move(spec), random);
}

// Memory order of the axes is drawn, so that both lane axes, several reduced axes and strided
// operands occur.
inline Case random_reduction_case(uint64_t seed, int64_t largest = 70) {
    if (seed % 6 == 5) return random_contraction_case(seed, largest);
    Random random(seed);
    KernelSpec spec;
    const int kept = static_cast<int>(random.range(0, 2)),
              reduced = static_cast<int>(random.range(1, 2)), rank = kept + reduced;
    spec.reduced = reduced;
    for (int axis = 0; axis < rank; ++axis)
        spec.extents.push_back(random.range(1, random.range(0, 2) ? largest : 9));
    const auto dense = [&](auto takes_part) {
        std::vector<int> order;
        for (int axis = 0; axis < rank; ++axis) order.push_back(axis);
        if (random.range(0, 2) == 0) std::reverse(order.begin(), order.end());
        std::vector<int64_t> strides(static_cast<size_t>(rank), 0);
        int64_t step = random.range(0, 7) ? 1 : 2;
        for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
            if (!takes_part(*axis)) continue;
            strides[static_cast<size_t>(*axis)] = step;
            step *= spec.extents[static_cast<size_t>(*axis)];
        }
        return strides;
    };
    const auto all = [](int) { return true; };
    const auto of_kept = [&](int axis) { return axis < kept; };
    const auto of_reduced = [&](int axis) { return axis >= kept; };

    ScalarProgram& program = spec.program;
    std::vector<Expr> elements, rows;
    const auto add_input = [&](DType dtype, std::vector<int64_t> strides, std::vector<Expr>& to) {
        spec.inputs.push_back({.dtype = dtype, .strides = std::move(strides)});
        const int id = program.input(static_cast<int>(spec.inputs.size()) - 1, compute_type(dtype));
        to.push_back(to_type(Expr(&program, id), ScalarType::f32));
    };
    const std::vector<DType> floats = {DType::f32, DType::f32, DType::f16, DType::bf16, DType::f64};
    for (int i = 0; i < random.range(1, 3); ++i)
        add_input(random.pick(floats), dense(all), elements);
    if (random.range(0, 1)) add_input(random.pick(floats), dense(of_reduced), elements);
    if (random.range(0, 1)) add_input(random.pick(floats), dense(of_kept), rows);
    if (random.range(0, 3) ==
        0) {  // a table of five entries, gathered by a row's or an element's index
        const bool by_row = random.range(0, 1);
        spec.inputs.push_back(
            {.dtype = DType::i32, .strides = by_row ? dense(of_kept) : dense(all)});
        const int index = static_cast<int>(spec.inputs.size()) - 1;
        std::vector<int64_t> strides = dense(of_reduced);
        int64_t step = 1;
        for (int axis = 0; axis < rank; ++axis)
            step +=
                strides[static_cast<size_t>(axis)] * (spec.extents[static_cast<size_t>(axis)] - 1);
        spec.inputs.push_back({.dtype = DType::f32,
                               .strides = std::move(strides),
                               .by = index,
                               .gather_stride = step});
        elements.push_back(Expr(&program, program.input(index + 1, ScalarType::f32)));
    }
    if (random.range(0, 2) == 0) {  // a coordinate
        std::vector<int64_t> strides(static_cast<size_t>(rank), 0);
        strides.back() = 1;
        spec.inputs.push_back(
            {.dtype = DType::i32, .strides = std::move(strides), .is_offset = true});
        const Expr at(&program,
                      program.input(static_cast<int>(spec.inputs.size()) - 1, ScalarType::i32));
        elements.push_back(to_type(at & 7.0, ScalarType::f32) * 0.25);
    }
    const auto element = [&] { return random.pick(elements); };
    const auto anything = [&] {
        return rows.empty() || random.range(0, 1) ? element() : random.pick(rows);
    };
    const int inputs = static_cast<int>(spec.inputs.size());
    for (int r = 0; r < random.range(1, 3); ++r) {
        Expr arg = element();
        for (int step = 0; step < random.range(0, 3); ++step)
            arg = small_step(random, program, arg, anything());
        const auto kind = static_cast<Reduce>(random.range(0, 8));
        const bool is_place = kind == Reduce::argmax || kind == Reduce::argmin;
        if (is_place) arg = elements[0];  // ties and rounding must not decide
        if (kind == Reduce::prod) arg = arg * 0.001 + 1.0;
        if (kind == Reduce::dot && random.range(0, 7)) arg = arg * anything();
        if (kind != Reduce::dot && random.range(0, 3) == 0) arg = to_type(arg, ScalarType::f64);
        else if (kind < Reduce::mean && random.range(0, 4) == 0)
            arg = to_type(arg * 4.0, random.range(0, 1) ? ScalarType::i64 : ScalarType::i32);
        spec.reductions.push_back({kind, arg.id()});
        const ScalarType type = is_place ? ScalarType::i32 : arg.type();
        const int id = program.input(inputs + r, type);
        spec.results.push_back(id);
        spec.outputs.push_back({.dtype = type == ScalarType::f32   ? DType::f32
                                         : type == ScalarType::f64 ? DType::f64
                                         : type == ScalarType::i64 ? DType::i64
                                                                   : DType::i32,
                                .strides = dense(of_kept)});
        const Expr value = to_type(Expr(&program, id), ScalarType::f32);
        rows.push_back(is_place                                     ? value * 0.001
                       : kind == Reduce::sum || kind == Reduce::dot ? value * (1.0 / 64)
                                                                    : value);
    }
    if (random.range(0, 2)) {
        Expr value = element();
        for (int step = 0; step < random.range(1, 4); ++step)
            value = small_step(random, program, value, anything());
        const DType dtype = random.pick(floats);
        spec.results.push_back(narrow(to_type(value, compute_type(dtype)), dtype).id());
        spec.outputs.push_back({.dtype = dtype, .strides = dense(all)});
    }
    return bound_and_filled(std::move(spec), random);
}

// How output k differs from what the interpreter gives; "" if not by a bit. `got` has
// output_bytes(k) + 1 bytes, zero where nothing is stored.
inline std::string fault_of(const Case& c, size_t k, const std::vector<char>& got,
                            const std::vector<char>& want) {
    const DType dtype = c.kernel.outputs[k].dtype;
    for (size_t at = 0; at + size_of(dtype) < want.size(); at += size_of(dtype))
        if (!same_value(dtype, got.data() + at, want.data() + at)) {
            uint64_t a = 0, b = 0;
            std::memcpy(&a, got.data() + at, size_of(dtype));
            std::memcpy(&b, want.data() + at, size_of(dtype));
            return cat("output ", k, "[", at / size_of(dtype), "]: bits ", in_hex(a),
                       " instead of ", in_hex(b));
        }
    return got.back() == 0 ? "" : cat("output ", k, ": wrote behind its end");
}

}  // namespace megjit::codegen
