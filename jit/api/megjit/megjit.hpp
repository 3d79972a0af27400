/**
 * @file megjit.hpp
 * @brief megjit.h for C++20: handles that free themselves, and exceptions. Of this header alone;
 * the ABI is megjit.h's.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "megjit/megjit.h"

namespace megjit {

/** What a call that failed becomes; what() is megjit_error_text(). */
class Error : public std::runtime_error {
public:
    explicit Error(megjit_status status)
        : std::runtime_error(megjit_error_text()), status_(status) {}
    megjit_status status() const { return status_; }

private:
    megjit_status status_;
};

inline void check(megjit_status status) {
    if (status != MEGJIT_OK) throw Error(status);
}

/** The megjit_dtype of float, double, std::int64_t, std::int32_t, std::int16_t, std::int8_t, their
 * unsigned ones and bool. */
template <class T>
constexpr megjit_dtype dtype_of() {
    using Element = std::remove_const_t<T>;
    if constexpr (std::is_same_v<Element, float>) return MEGJIT_FLOAT32;
    else if constexpr (std::is_same_v<Element, double>) return MEGJIT_FLOAT64;
    else if constexpr (std::is_same_v<Element, std::int64_t>) return MEGJIT_INT64;
    else if constexpr (std::is_same_v<Element, std::int32_t>) return MEGJIT_INT32;
    else if constexpr (std::is_same_v<Element, std::int16_t>) return MEGJIT_INT16;
    else if constexpr (std::is_same_v<Element, std::int8_t>) return MEGJIT_INT8;
    else if constexpr (std::is_same_v<Element, std::uint8_t>) return MEGJIT_UINT8;
    else if constexpr (std::is_same_v<Element, std::uint16_t>) return MEGJIT_UINT16;
    else {
        static_assert(std::is_same_v<Element, bool>, "no dtype of megjit has such elements");
        return MEGJIT_BOOL;
    }
}

/** What is known of an input, output, parameter or state. */
struct TensorInfo {
    std::string name;
    megjit_dtype dtype = MEGJIT_FLOAT32;
    std::vector<std::int64_t> shape;
    std::size_t bytes = 0;

    explicit TensorInfo(const megjit_tensor_info& info)
        : name(info.name),
          dtype(info.dtype),
          shape(info.shape, info.shape + info.rank),
          bytes(info.bytes) {}
};

/** Numbers in the host's memory; moves, does not copy. */
class Tensor {
public:
    /** In memory of its own, not cleared. */
    Tensor(megjit_dtype dtype, std::span<const std::int64_t> shape) {
        megjit_tensor* made = nullptr;
        check(megjit_tensor_create(dtype, static_cast<std::int32_t>(shape.size()), shape.data(),
                                   &made));
        handle_.reset(made);
    }
    /** Takes over a handle. */
    explicit Tensor(megjit_tensor* owned) : handle_(owned) {}

    /** In the caller's memory, which must outlive it. strides: in elements; empty: row-major. */
    template <class T>
    static Tensor borrow(T* data, std::span<const std::int64_t> shape,
                         std::span<const std::int64_t> strides = {}) {
        if (!strides.empty() && strides.size() != shape.size())
            throw std::invalid_argument("megjit: a stride for each axis is needed");
        megjit_tensor* made = nullptr;
        check(megjit_tensor_borrow(dtype_of<T>(), static_cast<std::int32_t>(shape.size()),
                                   shape.data(), strides.empty() ? nullptr : strides.data(), data,
                                   &made));
        return Tensor(made);
    }

    TensorInfo info() const {
        megjit_tensor_info info{};
        check(megjit_tensor_describe(handle_.get(), &info));
        return TensorInfo(info);
    }
    /** Its elements, of a row-major tensor. std::invalid_argument for another dtype. */
    template <class T>
    std::span<T> as() const {
        megjit_tensor_info info{};
        check(megjit_tensor_describe(handle_.get(), &info));
        if (info.dtype != dtype_of<T>())
            throw std::invalid_argument("megjit: the tensor has another dtype");
        void* data = nullptr;
        check(megjit_tensor_data(handle_.get(), &data));
        return {static_cast<T*>(data), info.bytes / sizeof(T)};
    }
    megjit_tensor* handle() const { return handle_.get(); }

private:
    struct Free {
        void operator()(megjit_tensor* tensor) const { megjit_tensor_free(tensor); }
    };
    std::unique_ptr<megjit_tensor, Free> handle_;
};

/** A loaded file and its compiled program; any thread may use it. Copies are the same model. */
class Model {
public:
    explicit Model(const std::string& path,
                   const megjit_model_options& options = MEGJIT_MODEL_OPTIONS_DEFAULT) {
        megjit_model* made = nullptr;
        check(megjit_model_load(path.c_str(), &options, &made));
        handle_.reset(made, megjit_model_free);
    }
    /** Of the bytes of a file, which are not needed afterwards. */
    explicit Model(std::span<const std::byte> bytes,
                   const megjit_model_options& options = MEGJIT_MODEL_OPTIONS_DEFAULT) {
        megjit_model* made = nullptr;
        check(megjit_model_load_memory(bytes.data(), bytes.size(), &options, &made));
        handle_.reset(made, megjit_model_free);
    }

    /** Another function of the file (`options.function`), with the same state. */
    Model share(const megjit_model_options& options) const {
        megjit_model* made = nullptr;
        check(megjit_model_share(handle(), &options, &made));
        return Model(made);
    }
    /** Another function of the file, with default options. */
    Model function(const std::string& name) const {
        megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
        options.function = name.c_str();
        return share(options);
    }
    std::vector<std::string> functions() const {
        std::size_t count = 0;
        check(megjit_model_function_count(handle(), &count));
        std::vector<std::string> names;
        for (std::size_t i = 0; i < count; ++i) {
            const char* name = nullptr;
            check(megjit_model_function(handle(), i, &name));
            names.emplace_back(name);
        }
        return names;
    }
    /** Functions and present state, as a file. */
    void save(const std::string& path) const { check(megjit_model_save(handle(), path.c_str())); }

    std::vector<TensorInfo> states() const {
        return all(megjit_model_state_count, megjit_model_state);
    }
    /** A copy of its numbers. */
    Tensor state(const std::string& name) const {
        megjit_tensor* made = nullptr;
        check(megjit_model_state_value(handle(), name.c_str(), &made));
        return Tensor(made);
    }
    void set_state(const std::string& name, const Tensor& value) const {
        check(megjit_model_set_state(handle(), name.c_str(), value.handle()));
    }

    std::vector<TensorInfo> inputs() const {
        return all(megjit_model_input_count, megjit_model_input);
    }
    std::vector<TensorInfo> outputs() const {
        return all(megjit_model_output_count, megjit_model_output);
    }
    /** Does the first extent of an output follow from the numbers? outputs() has the most. */
    bool is_bounded(std::size_t output) const {
        std::int32_t is_bounded = 0;
        check(megjit_model_output_is_bounded(handle(), output, &is_bounded));
        return is_bounded != 0;
    }
    std::vector<TensorInfo> parameters() const {
        return all(megjit_model_parameter_count, megjit_model_parameter);
    }
    /** "plan", "kernels", "profile" or "metadata". */
    std::string json(const std::string& what) const {
        std::string text;
        for (std::size_t needed = 1; needed > text.size();) {
            text.resize(needed);
            check(megjit_model_json(handle(), what.c_str(), text.data(), text.size(), &needed));
            if (needed <= text.size()) {
                text.resize(needed - 1);
                break;
            }
        }
        return text;
    }
    const megjit_model* handle() const { return handle_.get(); }

private:
    explicit Model(megjit_model* owned) : handle_(owned, megjit_model_free) {}
    template <class Count, class Describe>
    std::vector<TensorInfo> all(Count count_of, Describe describe) const {
        std::size_t count = 0;
        check(count_of(handle(), &count));
        std::vector<TensorInfo> result;
        for (std::size_t i = 0; i < count; ++i) {
            megjit_tensor_info info{};
            check(describe(handle(), i, &info));
            result.emplace_back(info);
        }
        return result;
    }
    std::shared_ptr<megjit_model> handle_;
};

/** Runs a model, one call at a time. */
class Context {
public:
    explicit Context(const Model& model) {
        megjit_context* made = nullptr;
        check(megjit_context_create(model.handle(), &made));
        handle_.reset(made);
        check(megjit_model_output_count(model.handle(), &outputs_));
    }

    /** All inputs in the model's order; returns all outputs. */
    std::vector<Tensor> run(std::span<const Tensor> inputs) {
        std::vector<megjit_tensor*> made(outputs_);
        run(inputs, made);
        std::vector<Tensor> result;
        for (megjit_tensor* tensor : made) result.emplace_back(tensor);
        return result;
    }
    /** The same into tensors of the caller's. */
    void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
        std::vector<megjit_tensor*> given;
        for (const Tensor& output : outputs) given.push_back(output.handle());
        run(inputs, given);
    }
    /** By name: all inputs, and the outputs that are wanted. */
    std::vector<Tensor> run(std::span<const std::pair<std::string, const Tensor*>> inputs,
                            std::span<const std::string> outputs) {
        std::vector<megjit_named_tensor> in, out;
        for (const auto& [name, tensor] : inputs) in.push_back({name.c_str(), tensor->handle()});
        for (const std::string& name : outputs) out.push_back({name.c_str(), nullptr});
        check(megjit_run_named(handle_.get(), in.data(), in.size(), out.data(), out.size()));
        std::vector<Tensor> result;
        for (const megjit_named_tensor& output : out) result.emplace_back(output.tensor);
        return result;
    }

private:
    void run(std::span<const Tensor> inputs, std::vector<megjit_tensor*>& outputs) {
        std::vector<const megjit_tensor*> given;
        for (const Tensor& input : inputs) given.push_back(input.handle());
        check(
            megjit_run(handle_.get(), given.data(), given.size(), outputs.data(), outputs.size()));
    }
    struct Free {
        void operator()(megjit_context* context) const { megjit_context_free(context); }
    };
    std::unique_ptr<megjit_context, Free> handle_;
    std::size_t outputs_ = 0;
};

}  // namespace megjit
