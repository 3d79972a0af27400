// tests/backends/tensor_testing.h -- runs one op on the CPU on values of any real dtype, and the
// random shapes and values that the tests of indexing, reductions and the like draw.
#pragma once

#include <functional>

#include "runtime/host/parallel.h"
#include "tests/backends/dnn_testing.h"

namespace megjit::testing {

using runtime::cat;

inline const std::vector<DType> kRealTypes = {DType::f32, DType::f16, DType::bf16,
                                              DType::i32, DType::i16, DType::i8,
                                              DType::u8,  DType::u16, DType::b8};

inline void store_any(void* memory, DType dtype, int64_t at, double value) {
    switch (dtype) {
        case DType::i32: static_cast<int32_t*>(memory)[at] = static_cast<int32_t>(value); return;
        case DType::i16: static_cast<int16_t*>(memory)[at] = static_cast<int16_t>(value); return;
        case DType::u16: static_cast<uint16_t*>(memory)[at] = static_cast<uint16_t>(value); return;
        case DType::u8: static_cast<uint8_t*>(memory)[at] = static_cast<uint8_t>(value); return;
        case DType::b8: static_cast<uint8_t*>(memory)[at] = value != 0; return;
        default: store(memory, dtype, at, value);
    }
}

inline double load_any(const void* memory, DType dtype, int64_t at) {
    switch (dtype) {
        case DType::i32: return static_cast<const int32_t*>(memory)[at];
        case DType::i16: return static_cast<const int16_t*>(memory)[at];
        case DType::u16: return static_cast<const uint16_t*>(memory)[at];
        case DType::u8:
        case DType::b8: return static_cast<const uint8_t*>(memory)[at];
        default: return load(memory, dtype, at);
    }
}

inline std::vector<Values> run_any(std::string_view name, const std::vector<Values>& inputs,
                                   const Attrs& attrs = {}) {
    runtime::Device& cpu = device();
    std::vector<Type> types;
    for (const Values& input : inputs) types.push_back(input.type);
    const runtime::OpCall call{runtime::find_op(name), attrs, types};
    const std::vector<Type> outputs = runtime::infer(call);
    const auto executable = cpu.prepare(call, outputs);
    std::vector<Aligned> memory;
    std::vector<void*> in, out;
    for (const Values& input : inputs) {
        in.push_back(memory.emplace_back(input.type.bytes()).p);
        for (int64_t i = 0; i < input.type.numel(); ++i)
            store_any(in.back(), input.type.dtype, i, input[i]);
    }
    for (const Type& type : outputs) {
        out.push_back(memory.emplace_back(type.bytes()).p);
        std::memset(out.back(), 0x7F, type.bytes());
    }
    const Aligned workspace(executable->workspace_bytes());
    std::memset(workspace.p, 0x7F, executable->workspace_bytes());
    executable->enqueue(runtime::inline_stream(), in.data(), out.data(), workspace.p);
    std::vector<Values> results;
    for (size_t o = 0; o < outputs.size(); ++o) {
        Values& result = results.emplace_back(
            Values{outputs[o], std::vector<double>(static_cast<size_t>(outputs[o].numel()))});
        for (int64_t i = 0; i < outputs[o].numel(); ++i)
            result[i] = load_any(out[o], outputs[o].dtype, i);
    }
    return results;
}

// The result on one and on two threads, which must be the same bits.
inline std::vector<Values> run_twice(std::string_view name, const std::vector<Values>& inputs,
                                     const Attrs& attrs = {}) {
    runtime::set_thread_count(1);
    const std::vector<Values> one = run_any(name, inputs, attrs);
    runtime::set_thread_count(2);
    const std::vector<Values> two = run_any(name, inputs, attrs);
    runtime::set_thread_count(0);
    for (size_t o = 0; o < one.size(); ++o)
        for (int64_t i = 0; i < one[o].type.numel(); ++i)
            if (one[o][i] != two[o][i] && !(std::isnan(one[o][i]) && std::isnan(two[o][i]))) {
                ADD_FAILURE() << name << ": element " << i << " of output " << o << " is "
                              << one[o][i] << " with one thread and " << two[o][i] << " with two";
                return two;
            }
    return two;
}

class Dice {
public:
    explicit Dice(unsigned seed) : generator_(seed) {}
    int64_t below(int64_t n) {
        return std::uniform_int_distribution<int64_t>(0, n - 1)(generator_);
    }
    int64_t between(int64_t lo, int64_t hi) { return lo + below(hi - lo + 1); }
    bool chance(double p) { return std::bernoulli_distribution(p)(generator_); }
    double normal() { return std::normal_distribution<double>()(generator_); }

    // Mostly small, sometimes empty or of extent 1.
    Shape shape(int rank, int64_t largest = 6) {
        Shape s;
        for (int i = 0; i < rank; ++i)
            s.push_back(chance(0.03) ? 0 : chance(0.2) ? 1 : between(1, largest));
        return s;
    }
    Values values(const Type& type, double scale = 5) {
        Values v{type, std::vector<double>(static_cast<size_t>(type.numel()))};
        uint64_t cell = 0;
        for (double& value : v.data) {
            double drawn = normal() * scale;
            if (info(type.dtype).category != runtime::Category::floating)
                drawn = std::round(std::abs(drawn));
            store_any(&cell, type.dtype, 0, drawn);
            value = load_any(&cell, type.dtype, 0);
        }
        return v;
    }
    Values places(const Shape& shape, int64_t extent) {  // in [-extent, extent)
        Values v{{DType::i32, shape}, std::vector<double>(static_cast<size_t>(shape.numel()))};
        for (double& value : v.data) value = static_cast<double>(between(-extent, extent - 1));
        return v;
    }

private:
    std::mt19937 generator_;
};

// Calls use(coordinates) for every element, in row-major order.
inline void for_each_place(const Shape& shape, const std::function<void(const Ints&)>& use) {
    Ints at(static_cast<size_t>(shape.rank()), 0);
    for (int64_t i = 0; i < shape.numel(); ++i) {
        int64_t rest = i;
        for (int axis = shape.rank() - 1; axis >= 0; --axis) {
            at[static_cast<size_t>(axis)] = rest % shape[axis];
            rest /= shape[axis];
        }
        use(at);
    }
}
inline int64_t flat(const Shape& shape, const Ints& at) {
    int64_t offset = 0;
    for (int axis = 0; axis < shape.rank(); ++axis)
        offset = offset * shape[axis] + at[static_cast<size_t>(axis)];
    return offset;
}

inline void expect_same(const Values& got, const std::vector<double>& expected,
                        const std::string& what) {
    ASSERT_EQ(got.data.size(), expected.size()) << what;
    for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(got.data[i], expected[i]) << what << ", element " << i;
}

}  // namespace megjit::testing
