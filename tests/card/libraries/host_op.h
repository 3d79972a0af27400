// tests/card/libraries/host_op.h -- ops of ours on float32 of the host: what the libraries compute
// with.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "runtime/core/op.h"

namespace megjit::card_libraries {

using Dims = std::vector<int64_t>;
int64_t count_of(const Dims& dims);  // elements

// Kernels take memory that is aligned to vectors.
template <class T>
struct AlignedAllocator {
    using value_type = T;
    AlignedAllocator() = default;
    template <class U>
    AlignedAllocator(const AlignedAllocator<U>&) {}
    T* allocate(size_t count) {
        return static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 127) / 64 * 64));
    }
    void deallocate(T* p, size_t) { std::free(p); }
    bool operator==(const AlignedAllocator&) const = default;
};

struct Array {  // row-major
    Dims dims = {};
    std::vector<float, AlignedAllocator<float>> data = {};
    static Array of(Dims dims) {
        const auto count = static_cast<size_t>(count_of(dims));
        return {std::move(dims), decltype(data)(count)};
    }
    float& operator[](int64_t i) { return data[static_cast<size_t>(i)]; }
    float operator[](int64_t i) const { return data[static_cast<size_t>(i)]; }
};

// The op's first result.
Array compute(std::string_view op, const std::vector<const Array*>& inputs,
              const runtime::Attrs& attrs);

// Elements in memory by the libraries' types; strides in elements.
enum class Element : uint8_t { f32, f16, bf16, i32, i8, b1 };
size_t size_of(Element type);
Array gather(const std::byte* memory, Element type, const Dims& dims, const Dims& strides);
void scatter(const Array& array, std::byte* memory, Element type, const Dims& strides);
void round_to(Element type, Array& array);  // as memory would hold them
void round_to_tf32(Array& array);  // 11 significant bits, to nearest even
size_t span_bytes(Element type, const Dims& dims, const Dims& strides);  // first to last byte

}  // namespace megjit::card_libraries
