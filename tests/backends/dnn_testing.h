// tests/backends/dnn_testing.h -- runs one op on the CPU with given values, dtypes and layouts.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backends/cpu/cpu_device.h"
#include "memory/caching_allocator.h"
#include "runtime/core/device.h"
#include "runtime/core/op.h"
#include "runtime/host/half.h"

namespace megjit::testing {

using runtime::Attr;
using runtime::Attrs;
using runtime::DType;
using runtime::Layout;
using runtime::Shape;
using runtime::Type;
using Ints = std::vector<int64_t>;

// Reads an attribute that has a number for each axis, or one for all.
inline int64_t at(const Ints& values, int axis) {
    return values[values.size() == 1 ? 0 : static_cast<size_t>(axis)];
}

// Logical (row-major) values of a tensor, whatever its dtype and layout.
struct Values {
    Type type = {};
    std::vector<double> data = {};
    double& operator[](int64_t i) { return data[static_cast<size_t>(i)]; }
    double operator[](int64_t i) const { return data[static_cast<size_t>(i)]; }
};

inline int64_t offset_in(const Type& type, int64_t logical) {
    if (type.layout == Layout::row_major || type.rank() < 3) return logical;
    int64_t spatial = 1;
    for (int axis = 2; axis < type.rank(); ++axis) spatial *= type.shape[axis];
    const int64_t c = type.shape[1], n = logical / (c * spatial), channel = logical / spatial % c,
                  s = logical % spatial;
    return (n * spatial + s) * c + channel;
}

inline void store(void* memory, DType dtype, int64_t at, double value) {
    const auto f = static_cast<float>(value);
    switch (dtype) {
        case DType::f32: static_cast<float*>(memory)[at] = f; return;
        case DType::f16: static_cast<uint16_t*>(memory)[at] = runtime::float_to_half(f); return;
        case DType::bf16: static_cast<uint16_t*>(memory)[at] = runtime::float_to_bfloat(f); return;
        case DType::i32: static_cast<int32_t*>(memory)[at] = static_cast<int32_t>(value); return;
        case DType::i8: static_cast<int8_t*>(memory)[at] = static_cast<int8_t>(value); return;
        case DType::u8: static_cast<uint8_t*>(memory)[at] = static_cast<uint8_t>(value); return;
        default: FAIL() << "no such dtype in this test";
    }
}

inline double load(const void* memory, DType dtype, int64_t at) {
    switch (dtype) {
        case DType::f32: return static_cast<double>(static_cast<const float*>(memory)[at]);
        case DType::f16:
            return static_cast<double>(
                runtime::half_to_float(static_cast<const uint16_t*>(memory)[at]));
        case DType::bf16:
            return static_cast<double>(
                runtime::bfloat_to_float(static_cast<const uint16_t*>(memory)[at]));
        case DType::i32: return static_cast<const int32_t*>(memory)[at];
        case DType::i8: return static_cast<const int8_t*>(memory)[at];
        case DType::u8: return static_cast<const uint8_t*>(memory)[at];
        default: return NAN;
    }
}

struct Aligned {
    explicit Aligned(size_t bytes) : p(std::aligned_alloc(64, (bytes + 127) / 64 * 64)) {}
    ~Aligned() { std::free(p); }
    Aligned(Aligned&& o) noexcept : p(std::exchange(o.p, nullptr)) {}
    Aligned& operator=(Aligned&&) = delete;
    void* p = nullptr;
};

// The ops and the device, made once for the test program.
inline runtime::Device& device() {
    static const bool once = [] {
        runtime::register_all_ops();
        runtime::register_device(
            std::make_unique<cpu::CpuDevice>(std::make_unique<memory::CachingAllocator>()));
        return true;
    }();
    (void)once;
    return runtime::host_device();
}

// Infers, prepares and runs. The layout pass may ask for other layouts of results than infer gives.
inline std::vector<Values> run(std::string_view name, const std::vector<Values>& inputs,
                               const Attrs& attrs = {}, std::vector<Layout> layouts = {}) {
    runtime::Device& cpu = device();
    const runtime::OpDef& op = runtime::find_op(name);
    std::vector<Type> types;
    for (const Values& input : inputs) types.push_back(input.type);
    const runtime::OpCall call{op, attrs, types};
    std::vector<Type> outputs = runtime::infer(call);
    for (size_t i = 0; i < layouts.size(); ++i) outputs[i].layout = layouts[i];
    const auto executable = cpu.prepare(call, outputs);
    std::vector<Aligned> memory;
    std::vector<void*> in, out;
    for (const Values& input : inputs) {
        memory.emplace_back(input.type.bytes());
        in.push_back(memory.back().p);
        for (int64_t i = 0; i < input.type.numel(); ++i)
            store(in.back(), input.type.dtype, offset_in(input.type, i), input[i]);
    }
    for (const Type& type : outputs) {
        memory.emplace_back(type.bytes());
        out.push_back(memory.back().p);
        std::memset(out.back(), 0x7F, type.bytes());
    }
    const Aligned workspace(executable->workspace_bytes());
    std::memset(workspace.p, 0x7F, executable->workspace_bytes());
    executable->enqueue(runtime::inline_stream(), in.data(), out.data(), workspace.p);
    std::vector<Values> results;
    for (size_t o = 0; o < outputs.size(); ++o) {
        Values result{outputs[o], std::vector<double>(static_cast<size_t>(outputs[o].numel()))};
        for (int64_t i = 0; i < outputs[o].numel(); ++i)
            result[i] = load(out[o], outputs[o].dtype, offset_in(outputs[o], i));
        results.push_back(std::move(result));
    }
    return results;
}

// Uniform in [-1, 1), already rounded to the dtype.
inline Values random(const Type& type, unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    Values values{type, std::vector<double>(static_cast<size_t>(type.numel()))};
    uint64_t cell = 0;
    for (double& value : values.data) {
        store(&cell, type.dtype, 0, uniform(generator));
        value = load(&cell, type.dtype, 0);
    }
    return values;
}
inline Values random(const Shape& shape, unsigned seed, Layout layout = Layout::row_major) {
    return random({DType::f32, shape, layout}, seed);
}

inline double dot(const Values& a, const Values& b) {
    double sum = 0;
    for (int64_t i = 0; i < a.type.numel(); ++i) sum += a[i] * b[i];
    return sum;
}

inline void expect_near(const Values& got, const Values& expected, double tolerance,
                        const std::string& what = "") {
    ASSERT_EQ(got.data.size(), expected.data.size()) << what;
    for (size_t i = 0; i < got.data.size(); ++i) {
        if (std::isnan(expected.data[i]) && std::isnan(got.data[i])) continue;
        ASSERT_NEAR(got.data[i], expected.data[i], tolerance * (1 + std::abs(expected.data[i])))
            << what << " at " << i;
    }
}

template <class Body>
std::string message_of(const Body& body) {
    try {
        body();
    } catch (const runtime::UserError& error) { return error.what(); }
    return "no error";
}

}  // namespace megjit::testing
