// tests/codegen/reduction_bits.h -- the bits of sums and other reductions, which every back-end,
// level of the instruction set and number of threads gives: a change of the order of
// codegen/row_plan.h changes the numbers here.
#pragma once

#include "tests/codegen/random_kernels.h"

namespace megjit::codegen {

// Runs units lo..hi of a kernel.
using RunUnits = std::function<void(const KernelIR& kernel, Case& c, void* const* outputs,
                                    int64_t lo, int64_t hi)>;

// FNV-1a of the outputs of five reductions over six shapes, of rows and of columns; the units in
// one range, or in two as two threads take them.
inline uint64_t reduction_bits(const RunUnits& run, bool in_two) {
    constexpr const char* kReductions[] = {"sum", "mean", "prod", "max", "variance"};
    constexpr int64_t kShapes[][2] = {{3, 1}, {5, 17}, {2, 128}, {7, 301}, {70, 64}, {129, 33}};
    uint64_t hash = 14695981039346656037u;
    for (const char* reduction : kReductions)
        for (const auto& [rows, length] : kShapes)
            for (const bool is_columns : {false, true}) {
                Case c;
                c.kernel = parse_kernel(runtime::cat(
                    "kernel rank=2 reduced=1 lanes=", is_columns ? "kept" : "last",
                    "\nin f32 contiguous\n%0: f32 = input 0\n%1: f32 = input 1\nreduce ", reduction,
                    " %0\nout f32", is_columns ? "" : " broadcast", " row %1\n"));
                const int64_t stride = is_columns ? 1 : length, step = is_columns ? rows : 1;
                c.launch = {.extents = {rows, length}, .strides = {stride, step, 1, 0}};
                Random random(static_cast<uint64_t>(rows * 1000 + length));
                std::vector<float> values(static_cast<size_t>(rows * length));
                for (float& value : values)
                    value = 0.5f + static_cast<float>(random.range(0, 1 << 20)) / (1 << 20);
                const char* bytes = reinterpret_cast<const char*>(values.data());
                c.inputs.emplace_back(bytes, bytes + 4 * values.size());
                std::vector<float> out(static_cast<size_t>(rows));
                void* outputs[] = {out.data()};
                const int64_t all = units(c.kernel, c.launch), middle = in_two ? all / 2 : all;
                run(c.kernel, c, outputs, 0, middle);
                if (in_two) run(c.kernel, c, outputs, middle, all);
                for (const float value : out)
                    for (int byte = 0; byte < 4; ++byte) {
                        hash ^= std::bit_cast<uint32_t>(value) >> (8 * byte) & 0xFF;
                        hash *= 1099511628211u;
                    }
            }
    return hash;
}
constexpr uint64_t kReductionBits = 14882227811858527473u;

}  // namespace megjit::codegen
