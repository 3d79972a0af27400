#include "tests/card/libraries/host_op.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>

#include "backends/cpu/cpu_device.h"
#include "memory/caching_allocator.h"
#include "runtime/core/device.h"
#include "runtime/core/stream.h"
#include "runtime/host/half.h"

namespace megjit::card_libraries {
namespace {

using runtime::Type;

runtime::Device& host() {
    static const bool once = [] {
        runtime::register_all_ops();
        runtime::register_device(
            std::make_unique<cpu::CpuDevice>(std::make_unique<memory::CachingAllocator>()));
        return true;
    }();
    (void)once;
    return runtime::host_device();
}

// visit(row-major number, offset by `strides`) for each element.
template <class Visit>
void each_element(const Dims& dims, const Dims& strides, const Visit& visit) {
    const int64_t count = count_of(dims);
    Dims at(dims.size(), 0);
    int64_t offset = 0;
    for (int64_t i = 0; i < count; ++i) {
        visit(i, offset);
        for (size_t axis = dims.size(); axis-- > 0;) {
            offset += strides[axis];
            if (++at[axis] < dims[axis]) break;
            offset -= at[axis] * strides[axis];
            at[axis] = 0;
        }
    }
}

float load(const std::byte* memory, Element type, int64_t at) {
    const auto as = [&]<class T>(T value) {
        std::memcpy(&value, memory + at * static_cast<int64_t>(sizeof value), sizeof value);
        return value;
    };
    switch (type) {
        case Element::f32: return as(float{});
        case Element::f16: return runtime::half_to_float(as(uint16_t{}));
        case Element::bf16: return runtime::bfloat_to_float(as(uint16_t{}));
        case Element::i32: return static_cast<float>(as(int32_t{}));
        case Element::i8: return as(int8_t{});
        case Element::b1: return as(uint8_t{});
    }
    return 0;
}

void store(std::byte* memory, Element type, int64_t at, float value) {
    const auto put = [&](auto element) {
        std::memcpy(memory + at * static_cast<int64_t>(sizeof element), &element, sizeof element);
    };
    switch (type) {
        case Element::f32: return put(value);
        case Element::f16: return put(runtime::float_to_half(value));
        case Element::bf16: return put(runtime::float_to_bfloat(value));
        case Element::i32: return put(static_cast<int32_t>(value));
        case Element::i8: return put(static_cast<int8_t>(value));
        case Element::b1: return put(static_cast<uint8_t>(value != 0));
    }
}

}  // namespace

int64_t count_of(const Dims& dims) {
    return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

Array compute(std::string_view name, const std::vector<const Array*>& inputs,
              const runtime::Attrs& attrs) {
    static std::mutex mutex;
    const runtime::OpDef* op = nullptr;
    std::vector<Type> types, results;
    std::shared_ptr<const runtime::Executable> kernel;
    {
        const std::lock_guard lock(mutex);
        runtime::Device& device = host();
        op = &runtime::find_op(name);
        for (const Array* input : inputs)
            types.push_back({runtime::DType::f32, runtime::Shape(std::span(input->dims))});
        const runtime::OpCall call{*op, attrs, types};
        results = runtime::infer(call);
        kernel = device.prepare(call, results);
    }
    const auto& shape = results[0].shape;
    Array result = Array::of({shape.begin(), shape.end()});
    Array workspace =
        Array::of({static_cast<int64_t>(kernel->workspace_bytes() / sizeof(float)) + 1});
    std::vector<void*> in;
    for (const Array* input : inputs) in.push_back(const_cast<float*>(input->data.data()));
    void* out[] = {result.data.data()};
    kernel->enqueue(runtime::inline_stream(), in.data(), out, workspace.data.data());
    return result;
}

size_t size_of(Element type) {
    switch (type) {
        case Element::f32:
        case Element::i32: return 4;
        case Element::f16:
        case Element::bf16: return 2;
        default: return 1;
    }
}

Array gather(const std::byte* memory, Element type, const Dims& dims, const Dims& strides) {
    Array array = Array::of(dims);
    each_element(dims, strides,
                 [&](int64_t i, int64_t offset) { array[i] = load(memory, type, offset); });
    return array;
}

void scatter(const Array& array, std::byte* memory, Element type, const Dims& strides) {
    each_element(array.dims, strides,
                 [&](int64_t i, int64_t offset) { store(memory, type, offset, array[i]); });
}

void round_to(Element type, Array& array) {
    if (type == Element::f32) return;
    std::byte bytes[sizeof(float)];
    for (float& value : array.data) {
        store(bytes, type, 0, value);
        value = load(bytes, type, 0);
    }
}

void round_to_tf32(Array& array) {
    constexpr uint32_t kDropped = 13;
    for (float& value : array.data) {
        auto bits = std::bit_cast<uint32_t>(value);
        if (!std::isfinite(value)) continue;
        bits += (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
        value = std::bit_cast<float>(bits & ~((1u << kDropped) - 1));
    }
}

size_t span_bytes(Element type, const Dims& dims, const Dims& strides) {
    int64_t last = 0;
    for (size_t axis = 0; axis < dims.size(); ++axis) last += (dims[axis] - 1) * strides[axis];
    return static_cast<size_t>(last + 1) * size_of(type);
}

}  // namespace megjit::card_libraries
