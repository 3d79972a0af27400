// megbrain/custom/values.h -- what functions of custom ops get and give besides tensors: devices,
// dtypes, shapes, parameters.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "megjit/custom_op.h"

#pragma GCC visibility push(hidden)
namespace custom {

// Where a tensor lies: "x86" is the host.
class Device {
public:
    Device(const char* name = "x86") : name_(name) {}
    Device(std::string name) : name_(std::move(name)) {}
    const std::string& str() const { return name_; }
    bool operator==(const Device& other) const { return name_ == other.name_; }
    bool operator!=(const Device& other) const { return name_ != other.name_; }

private:
    std::string name_;
};

// "float32", "float16", "bfloat16", "int32", "int16", "int8", "uint16", "uint8", "bool",
// "complex64".
class DType {
public:
    DType(const char* name = "float32") : name_(known(name)) {}
    DType(const std::string& name) : DType(name.c_str()) {}
    std::string str() const { return name_; }
    const char* c_str() const { return name_; }  // stays valid
    bool operator==(const DType& other) const { return name_ == other.name_; }
    bool operator!=(const DType& other) const { return name_ != other.name_; }

    // Are elements of this dtype Ts?
    template <class T>
    bool is() const {
        const char* name = std::is_same_v<T, float>                 ? "float32"
                           : std::is_same_v<T, int32_t>             ? "int32"
                           : std::is_same_v<T, int16_t>             ? "int16"
                           : std::is_same_v<T, int8_t>              ? "int8"
                           : std::is_same_v<T, uint8_t>             ? "uint8"
                           : std::is_same_v<T, uint16_t>            ? "uint16"
                           : std::is_same_v<T, bool>                ? "bool"
                           : std::is_same_v<T, std::complex<float>> ? "complex64"
                                                                    : "";
        return str() == name;
    }

private:
    static const char* known(const char* name) {
        static const char* const names[] = {"float32", "float16", "bfloat16", "int32", "int16",
                                            "int8",    "uint16",  "uint8",    "bool",  "complex64"};
        for (const char* each : names)
            if (std::strcmp(each, name) == 0) return each;
        throw std::invalid_argument(std::string("there is no dtype ") + name);
    }
    const char* name_;  // one of `names`
};

class Shape {
public:
    Shape() = default;
    Shape(std::initializer_list<size_t> extents) : extents_(extents) {}
    explicit Shape(std::vector<size_t> extents) : extents_(std::move(extents)) {}

    size_t ndim() const { return extents_.size(); }
    void ndim(size_t axes) { extents_.resize(axes); }
    size_t operator[](size_t axis) const { return extents_[checked(axis)]; }
    size_t& operator[](size_t axis) { return extents_[checked(axis)]; }
    bool operator==(const Shape& other) const { return extents_ == other.extents_; }
    bool operator!=(const Shape& other) const { return extents_ != other.extents_; }
    std::string str() const {
        std::string text;
        for (const size_t extent : extents_)
            text += (text.empty() ? "" : ", ") + std::to_string(extent);
        return "[" + text + "]";
    }

private:
    size_t checked(size_t axis) const {
        if (axis < ndim()) return axis;
        throw std::out_of_range("axis " + std::to_string(axis) + " of the shape " + str());
    }
    std::vector<size_t> extents_;
};

// A parameter's value: a number, a bool, text, or a list of numbers.
class ParamVal {
public:
    ParamVal() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    ParamVal(T value) {
        if constexpr (std::is_floating_point_v<T>) value_ = static_cast<double>(value);
        else value_ = static_cast<int64_t>(value);
    }
    ParamVal(const char* text) : value_(std::string(text)) {}
    ParamVal(std::string text) : value_(std::move(text)) {}
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    ParamVal(const std::vector<T>& list) {
        if constexpr (std::is_floating_point_v<T>)
            value_ = std::vector<double>(list.begin(), list.end());
        else value_ = std::vector<int64_t>(list.begin(), list.end());
    }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    ParamVal(std::initializer_list<T> list) : ParamVal(std::vector<T>(list)) {}

    // Numbers become any number; nothing else changes its kind.
    template <class T>
    T as() const {
        return std::visit([](const auto& value) -> T {
            using V = std::decay_t<decltype(value)>;
            if constexpr (std::is_arithmetic_v<T> && std::is_arithmetic_v<V>) {
                return static_cast<T>(value);
            } else if constexpr (is_list<T>() && is_list<V>()) {
                return T(value.begin(), value.end());
            } else if constexpr (std::is_same_v<T, V>) {
                return value;
            } else {
                throw std::invalid_argument("a parameter is asked for as what it is not");
            }
        }, value_);
    }
    std::string str() const { return as<std::string>(); }

    friend ParamVal operator+(const ParamVal& a, const ParamVal& b) {
        if (std::holds_alternative<std::string>(a.value_)) return a.str() + b.str();
        return numbers(a, b, std::plus<>());
    }
    friend ParamVal operator-(const ParamVal& a, const ParamVal& b) {
        return numbers(a, b, std::minus<>());
    }
    friend ParamVal operator*(const ParamVal& a, const ParamVal& b) {
        return numbers(a, b, std::multiplies<>());
    }
    friend ParamVal operator/(const ParamVal& a, const ParamVal& b) {
        if (!a.is_real() && !b.is_real() && b.as<int64_t>() == 0)
            throw std::invalid_argument("a parameter is divided by zero");
        return numbers(a, b, std::divides<>());
    }
    friend bool operator==(const ParamVal& a, const ParamVal& b) {
        return a.is_number() && b.is_number() ? a.as<double>() == b.as<double>()
                                              : a.value_ == b.value_;
    }
    friend bool operator!=(const ParamVal& a, const ParamVal& b) { return !(a == b); }
    friend bool operator<(const ParamVal& a, const ParamVal& b) {
        return a.is_number() && b.is_number() ? a.as<double>() < b.as<double>()
                                              : a.value_ < b.value_;
    }
    friend bool operator>(const ParamVal& a, const ParamVal& b) { return b < a; }
    friend bool operator<=(const ParamVal& a, const ParamVal& b) { return !(b < a); }
    friend bool operator>=(const ParamVal& a, const ParamVal& b) { return !(a < b); }

    // The value as `to` says, whose pointers live as long as this.
    void show(megjit_param& to) const {
        to.kind = static_cast<int32_t>(value_.index());
        if (auto* integer = std::get_if<int64_t>(&value_)) to.integer = *integer;
        if (auto* real = std::get_if<double>(&value_)) to.real = *real;
        if (auto* text = std::get_if<std::string>(&value_)) to.text = text->c_str();
        if (auto* integers = std::get_if<std::vector<int64_t>>(&value_))
            to.integers = integers->data(), to.count = integers->size();
        if (auto* reals = std::get_if<std::vector<double>>(&value_))
            to.reals = reals->data(), to.count = reals->size();
    }
    static ParamVal read(const megjit_param& from) {
        switch (from.kind) {
            case MEGJIT_INTEGER: return from.integer;
            case MEGJIT_REAL: return from.real;
            case MEGJIT_TEXT: return from.text;
            case MEGJIT_INTEGERS:
                return std::vector<int64_t>(from.integers, from.integers + from.count);
            default: return std::vector<double>(from.reals, from.reals + from.count);
        }
    }

private:
    template <class T>
    static constexpr bool is_list() {
        if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) return false;
        else return std::is_arithmetic_v<typename T::value_type>;
    }
    bool is_real() const { return std::holds_alternative<double>(value_); }
    bool is_number() const { return value_.index() < 2; }
    template <class Do>
    static ParamVal numbers(const ParamVal& a, const ParamVal& b, Do apply) {
        if (a.is_real() || b.is_real()) return apply(a.as<double>(), b.as<double>());
        return apply(a.as<int64_t>(), b.as<int64_t>());
    }
    // In the order of megjit_param_kind.
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>> value_;
};

// Parameters of a call, by name.
class Param {
public:
    const ParamVal& operator[](const std::string& name) const {
        for (const auto& [each, value] : values_)
            if (each == name) return value;
        throw std::out_of_range("there is no parameter " + name);
    }
    ParamVal& operator[](const std::string& name) {
        return const_cast<ParamVal&>(static_cast<const Param&>(*this)[name]);
    }
    void add(std::string name, ParamVal value) {
        values_.emplace_back(std::move(name), std::move(value));
    }
    const std::deque<std::pair<std::string, ParamVal>>& all() const { return values_; }

private:
    std::deque<std::pair<std::string, ParamVal>> values_;
};

}  // namespace custom
#pragma GCC visibility pop
