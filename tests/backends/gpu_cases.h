// Kernels that every compiler for GPUs is tested with: random ones, and ones for what chance seldom
// makes.
#pragma once

#include "codegen/expand_math.h"
#include "codegen/gpu_image.h"
#include "codegen/gpu_plan.h"
#include "codegen/legalize.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen {

// "" where both differ by no more than another order of additions makes: threads share a row.
inline std::string reduction_fault_of(const Case& c, size_t k, const std::vector<char>& got,
                                      const std::vector<char>& want) {
    const DType dtype = c.kernel.outputs[k].dtype;
    const size_t size = size_of(dtype), count = want.size() / size;
    const auto value = [&](const std::vector<char>& bytes, size_t i) -> double {
        uint64_t wide = 0;
        std::memcpy(&wide, bytes.data() + i * size, size);
        const auto bits = static_cast<uint32_t>(wide);
        return dtype == DType::f64    ? std::bit_cast<double>(wide)
               : dtype == DType::i64  ? static_cast<double>(static_cast<int64_t>(wide))
               : dtype == DType::f32  ? std::bit_cast<float>(bits)
               : dtype == DType::f16  ? half_to_float(static_cast<uint16_t>(bits))
               : dtype == DType::bf16 ? bfloat_to_float(static_cast<uint16_t>(bits))
                                      : static_cast<double>(static_cast<int32_t>(bits));
    };
    double largest = 1;
    for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(value(want, i)));
    const double rounding = dtype == DType::bf16  ? 0x1p-7
                            : dtype == DType::f16 ? 0x1p-9
                                                  : 0,
                 allowed =
                     dtype == DType::i32 || dtype == DType::i64 ? 0 : (2e-5 + rounding) * largest;
    for (size_t i = 0; i < count; ++i)
        if (const double a = value(got, i), b = value(want, i);
            !(std::fabs(a - b) <= allowed) && !(a != a && b != b) && a != b)
            return cat("output ", k, "[", i, "]: ", a, " instead of ", b);
    return got.back() == 0 ? "" : cat("output ", k, ": wrote behind its end");
}

struct GpuCase {
    std::string name;
    Case data;  // its kernel is expanded
    // The interpreter's bits, but for reductions whose order of additions is a GPU's own.
    std::string fault_of(size_t output, const std::vector<char>& got,
                         const std::vector<char>& want) const {
        if (!keeps_order_on_gpu(data.kernel, data.launch))
            return reduction_fault_of(data, output, got, want);
        return codegen::fault_of(data, output, got, want);
    }
};

inline Case with_data(BoundKernel bound, uint64_t seed) {
    Random random(seed);
    Case c{.kernel = std::move(bound.kernel), .launch = std::move(bound.launch), .inputs = {}};
    for (size_t i = 0; i < memory_inputs(c.kernel); ++i) {
        const Operand& input = c.kernel.inputs[i];
        const int64_t count = c.input_elements(i);
        auto& bytes = c.inputs.emplace_back(static_cast<size_t>(count) * size_of(input.dtype));
        const bool is_index =
            std::any_of(c.kernel.inputs.begin(), c.kernel.inputs.end(),
                        [&](const Operand& other) { return other.by == static_cast<int>(i); });
        if (!is_index) random.fill(input.dtype, bytes.data(), count);
        for (int64_t e = 0; is_index && e < count; ++e) {
            const auto index = static_cast<int32_t>(random.range(0, 4));
            std::memcpy(bytes.data() + e * 4, &index, 4);
        }
    }
    return c;
}

// a * b + c with rows of whole vectors: one operand in full, one a row, one an element of each row.
inline Case broadcast_case(DType dtype, int64_t rows, int64_t columns) {
    ScalarProgram program;
    const ScalarType type = compute_type(dtype);
    const Expr a(&program, program.input(0, type)), b(&program, program.input(1, type)),
        c(&program, program.input(2, type));
    const int result = narrow(a * b + c, dtype).id();
    const std::vector<Type> inputs = {
        {dtype, {rows, columns}}, {dtype, {columns}}, {dtype, {rows, 1}}};
    return with_data(bind(std::move(program), {result}, {dtype}, {rows, columns}, inputs),
                     static_cast<uint64_t>(rows));
}

// Rows of a table, by one index a row or by one an element; and a coordinate.
inline Case gather_case(DType dtype, int64_t columns, bool by_row) {
    KernelSpec spec;
    spec.extents = {6, columns};
    spec.inputs.push_back(
        {.dtype = DType::i32,
         .strides = by_row ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{columns, 1}});
    spec.inputs.push_back({.dtype = dtype, .strides = {0, 1}, .by = 0, .gather_stride = columns});
    spec.inputs.push_back({.dtype = DType::i32, .strides = {1, 3}, .is_offset = true});
    spec.outputs.push_back({.dtype = DType::f32, .strides = {columns, 1}});
    const Expr x(&spec.program, spec.program.input(1, compute_type(dtype))),
        at(&spec.program, spec.program.input(2, ScalarType::i32));
    spec.results.push_back((to_type(x, ScalarType::f32) + to_type(at, ScalarType::f32)).id());
    return with_data(bind(std::move(spec)), static_cast<uint64_t>(columns));
}

// Every kind of reduction over one walk, and then each element less its row's mean. `kept_last`:
// the kept axis is the one along which memory is contiguous.
inline Case all_reductions_case(DType dtype, int64_t rows, int64_t length, bool kept_last,
                                bool with_elements = true) {
    KernelSpec spec;
    spec.extents = {rows, length};
    spec.reduced = 1;
    const std::vector<int64_t> strides =
        kept_last ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{length, 1};
    spec.inputs.push_back({.dtype = dtype, .strides = strides});
    const Expr x =
        to_type(Expr(&spec.program, spec.program.input(0, compute_type(dtype))), ScalarType::f32);
    const Expr factor = x * 0x1p-12 + 1.0, whole = to_type(x * 8.0, ScalarType::i32),
               is_large = 1.5 < x;
    const auto add = [&](Reduce kind, Expr arg, ScalarType gives, DType stored) {
        const int id = spec.program.input(static_cast<int>(1 + spec.reductions.size()), gives);
        spec.reductions.push_back({kind, arg.id()});
        spec.results.push_back(id);
        spec.outputs.push_back({.dtype = stored, .strides = {1, 0}});
        return Expr(&spec.program, id);
    };
    for (Reduce kind : {Reduce::sum, Reduce::max, Reduce::min, Reduce::variance})
        add(kind, x, ScalarType::f32, DType::f32);
    add(Reduce::prod, factor, ScalarType::f32, DType::f32);
    for (Reduce kind : {Reduce::argmax, Reduce::argmin}) add(kind, x, ScalarType::i32, DType::i32);
    for (Reduce kind : {Reduce::sum, Reduce::prod, Reduce::max, Reduce::min, Reduce::argmax})
        add(kind, whole, ScalarType::i32, DType::i32);
    for (Reduce kind : {Reduce::max, Reduce::min}) add(kind, is_large, ScalarType::b1, DType::b8);
    const Expr mean = add(Reduce::mean, x, ScalarType::f32, DType::f32);
    if (with_elements) {
        spec.results.push_back(narrow(x - mean, DType::f16).id());
        spec.outputs.push_back({.dtype = DType::f16, .strides = strides});
    }
    Case c = with_data(bind(std::move(spec)), static_cast<uint64_t>(length));
    Random random(static_cast<uint64_t>(rows));
    const int64_t count = rows * length;
    for (int64_t e = 0; e < count; ++e) {
        const float value = static_cast<float>(random.range(-512, 512)) / 256;
        const uint32_t bits = dtype == DType::f32   ? std::bit_cast<uint32_t>(value)
                              : dtype == DType::f16 ? float_to_half(value)
                                                    : float_to_bfloat(value);
        std::memcpy(c.inputs[0].data() + static_cast<size_t>(e) * size_of(dtype), &bits,
                    size_of(dtype));
    }
    return c;
}

// The sum of max(x * 2, 0): a row's argument that is a maximum with a constant.
inline Case relu_sum_case(int64_t rows, int64_t length) {
    KernelSpec spec;
    spec.extents = {rows, length};
    spec.reduced = 1;
    spec.inputs.push_back({.dtype = DType::f32, .strides = {length, 1}});
    const Expr x(&spec.program, spec.program.input(0, ScalarType::f32));
    spec.reductions.push_back({Reduce::sum, max(x * 2.0, 0.0).id()});
    spec.results.push_back(spec.program.input(1, ScalarType::f32));
    spec.outputs.push_back({.dtype = DType::f32, .strides = {1, 0}});
    return with_data(bind(std::move(spec)), static_cast<uint64_t>(rows));
}

// Three walks, of which the last needs what the second computed with many instructions.
inline Case softmax_case(int64_t rows, int64_t length) {
    KernelSpec spec;
    spec.extents = {rows, length};
    spec.reduced = 1;
    spec.inputs.push_back({.dtype = DType::f32, .strides = {length, 1}});
    ScalarProgram& program = spec.program;
    const Expr x(&program, program.input(0, ScalarType::f32));
    spec.reductions.push_back({Reduce::max, x.id()});
    const Expr e = exp(x - Expr(&program, program.input(1, ScalarType::f32)));
    spec.reductions.push_back({Reduce::sum, e.id()});
    spec.results.push_back((e / Expr(&program, program.input(2, ScalarType::f32))).id());
    spec.outputs.push_back({.dtype = DType::f32, .strides = {length, 1}});
    return with_data(bind(std::move(spec)), static_cast<uint64_t>(length));
}

// Batches of a product with small weights that become floats as they are read, and a gelu behind
// it.
inline Case product_case(std::array<int64_t, 4> extents, bool rows_turned, bool columns_turned,
                         DType rows = DType::f32, DType columns = DType::i8) {
    const auto [batches, m, n, k] = extents;
    KernelSpec spec;
    spec.extents = {batches, m, n, k};
    spec.reduced = 1;
    spec.packs = true;
    const auto input = [&](DType dtype, std::vector<int64_t> strides) {
        const auto number = static_cast<int>(spec.inputs.size());
        spec.inputs.push_back({.dtype = dtype, .strides = std::move(strides)});
        const int id = spec.program.input(number, compute_type(dtype));
        return to_type(Expr(&spec.program, id), ScalarType::f32);
    };
    const Expr a = input(rows, {m * k, rows_turned ? 1 : k, 0, rows_turned ? m : 1}),
               b = input(columns, {0, 0, columns_turned ? k : 1, columns_turned ? 1 : n}),
               scale = input(DType::f32, {0, 0, 1, 0}), bias = input(rows, {0, 0, 1, 0});
    spec.reductions.push_back({Reduce::dot, (a * (columns == rows ? b : b * scale)).id()});
    const Expr sum(&spec.program, spec.program.input(4, ScalarType::f32));
    const Expr x = sum * (1.0 / 64) + bias;
    spec.results.push_back(narrow(x / (exp(-x) + 1.0), rows).id());
    spec.outputs.push_back({.dtype = rows, .strides = {m * n, n, 1, 0}});
    Random random(static_cast<uint64_t>(m * n + k));
    return bound_and_filled(std::move(spec), random);
}

inline std::vector<GpuCase> handmade_gpu_cases() {
    std::vector<GpuCase> cases;
    const auto add = [&](std::string name, Case c) {
        cases.push_back({std::move(name), std::move(c)});
    };
    for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i8, DType::i32})
        for (int64_t columns : {64, 36, 35})
            add(cat("broadcast ", info(dtype).tag, " of ", columns),
                broadcast_case(dtype, 7, columns));
    for (DType dtype : {DType::f32, DType::f16})
        for (int64_t columns : {64, 35})
            for (bool by_row : {true, false})
                add(cat("gather ", info(dtype).tag, " of ", columns),
                    gather_case(dtype, columns, by_row));
    for (const int64_t length : {64, 2048})
        add(cat("relu and sum of ", length), relu_sum_case(3, length)),
            add(cat("softmax of ", length), softmax_case(3, length));
    for (bool kept_last : {false, true}) {
        const auto reductions = [&](DType dtype, int64_t rows, int64_t length,
                                    bool with_elements = true) {
            add(cat("reductions ", info(dtype).tag, " ", rows, "x", length,
                    kept_last ? " transposed" : ""),
                all_reductions_case(dtype, rows, length, kept_last, with_elements));
        };
        reductions(DType::f32, 70, 33);
        reductions(DType::f16, 3, 2048);
        reductions(DType::bf16, 2, 9000);
        reductions(DType::f32, 2, 20001);
        reductions(DType::f32, 2, 20000, false);
        reductions(DType::f16, kept_last ? 33 : 1, 9000, false);
    }
    // By tiles of every size, whole ones and edges.
    using Extents = std::array<int64_t, 4>;
    for (const Extents& extents : {Extents{1, 5, 33, 130},
                                   {2, 40, 70, 64},
                                   {128, 33, 20, 17},
                                   {128, 70, 64, 5},
                                   {1, 20, 40, 1100}})
        for (const bool rows_turned : {false, true})
            for (const bool columns_turned : {false, true})
                add(cat("product ", extents[0], "x", extents[1], "x", extents[2], "x", extents[3],
                        rows_turned ? " t" : " n", columns_turned ? "t" : "n"),
                    product_case(extents, rows_turned, columns_turned));
    for (const DType dtype : {DType::f16, DType::bf16})
        for (const Extents& extents : {Extents{2, 40, 70, 150},
                                       {128, 33, 20, 33},
                                       {128, 70, 64, 18},
                                       {1, 5, 9, 3},
                                       {1, 20, 40, 1100}})
            for (const bool turned : {false, true})
                add(cat("product of ", info(dtype).tag, " ", extents[0], "x", extents[1], "x",
                        extents[2], "x", extents[3], turned ? " tt" : " nn"),
                    product_case(extents, turned, turned, dtype, dtype));
    for (GpuCase& c : cases) c.data.kernel = expand_math(c.data.kernel);
    return cases;
}

inline std::vector<GpuCase> random_gpu_cases(uint64_t first, uint64_t last) {
    std::vector<GpuCase> cases;
    for (uint64_t seed = first; seed < last; ++seed) {
        cases.push_back({cat("random_case ", seed), random_case(seed)});
        cases.push_back(
            {cat("random_reduction_case ", seed), random_reduction_case(seed, seed % 4 ? 40 : 70)});
        cases.push_back({cat("random_contraction_case ", seed), random_contraction_case(seed, 40)});
    }
    for (GpuCase& c : cases) c.data.kernel = expand_math(c.data.kernel);
    return cases;
}

}  // namespace megjit::codegen
