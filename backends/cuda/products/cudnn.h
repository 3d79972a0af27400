// backends/cuda/products/cudnn.h -- cuDNN's backend API behind two classes: the library and its
// descriptors. Nothing here needs a GPU. Errors are DeviceErrors with the library's own words.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cuda/products/cudnn_api.h"
#include "runtime/host/nvidia_libraries.h"

namespace megjit::cuda::cudnn {

struct Functions {
#define MEGJIT_X(symbol, name, result, parameters) result(*name) parameters = nullptr;
    MEGJIT_CUDNN_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
};

class Library {
public:
    // Null, with the reason, where cuDNN is missing.
    static const Library* find(std::string* why_not);
    explicit Library(const runtime::FoundLibrary& found);

    const Functions& call() const { return functions_; }
    const std::string& version() const { return found_.version_text; }  // "9.27.0"
    void check(Status status, std::string_view what) const;

private:
    const runtime::FoundLibrary& found_;
    Functions functions_;
};

// A choice among named values, with the type of the attribute that takes it.
struct Choice {
    Tag tag = Tag::data_type;
    int value = 0;
    bool operator==(const Choice&) const = default;
};
inline Choice choice(DataType v) { return {Tag::data_type, static_cast<int>(v)}; }
inline Choice choice(ConvolutionMode v) { return {Tag::convolution_mode, static_cast<int>(v)}; }
inline Choice choice(HeuristicMode v) { return {Tag::heuristic_mode, static_cast<int>(v)}; }
inline Choice choice(PointwiseMode v) { return {Tag::pointwise_mode, static_cast<int>(v)}; }
inline Choice choice(SumsMode v) { return {Tag::sums_mode, static_cast<int>(v)}; }
inline Choice choice(ReduceMode v) { return {Tag::reduce_mode, static_cast<int>(v)}; }
inline Choice choice(ResampleMode v) { return {Tag::resample_mode, static_cast<int>(v)}; }
inline Choice choice(PaddingMode v) { return {Tag::padding_mode, static_cast<int>(v)}; }
inline Choice choice(NanPropagation v) { return {Tag::nan_propagation, static_cast<int>(v)}; }
inline Choice choice(NormMode v) { return {Tag::norm_mode, static_cast<int>(v)}; }
inline Choice choice(NormPhase v) { return {Tag::norm_phase, static_cast<int>(v)}; }

// One descriptor, owned.
class Descriptor {
public:
    Descriptor(const Library& library, Kind kind);
    Descriptor(Descriptor&& other) noexcept
        : library_(other.library_), raw_(std::exchange(other.raw_, nullptr)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(library_, other.library_);
        std::swap(raw_, other.raw_);
        return *this;
    }
    ~Descriptor();
    RawDescriptor raw() const { return raw_; }
    const Library& library() const { return *library_; }

    Descriptor& set(int name, Choice value) { return put(name, value.tag, 1, &value.value); }
    Descriptor& set(int name, int64_t value) { return put(name, Tag::int64, 1, &value); }
    Descriptor& set(int name, bool value) { return put(name, Tag::boolean, 1, &value); }
    Descriptor& set(int name, float value) { return put(name, Tag::real32, 1, &value); }
    Descriptor& set(int name, const std::vector<int64_t>& values) {
        return put(name, Tag::int64, values.size(), values.data());
    }
    Descriptor& set(int name, const std::vector<void*>& values) {
        return put(name, Tag::pointer, values.size(), values.data());
    }
    Descriptor& set(int name, const Descriptor& value) {
        return put(name, Tag::descriptor, 1, &value.raw_);
    }
    Descriptor& set(int name, const std::vector<Descriptor>& values);
    Descriptor& set(int name, const std::string& text) {
        return put(name, Tag::text, text.size(), text.data());
    }
    Descriptor& finalize(std::string_view what);

    int64_t integer(int name) const;
    std::string text(int name) const;
    std::vector<NumericalNote> notes() const;  // notes of an engine
    // The descriptors in an attribute that holds several; `kind` is their kind.
    std::vector<Descriptor> descriptors(int name, Kind kind) const;

private:
    Descriptor& put(int name, Tag tag, size_t count, const void* values);
    int64_t get(int name, Tag tag, int64_t room, void* values) const;

    const Library* library_;
    RawDescriptor raw_ = nullptr;
};

}  // namespace megjit::cuda::cudnn
