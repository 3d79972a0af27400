// megbrain/custom/custom.h -- custom ops in C++17: what an op takes and gives, how its results'
// shapes and dtypes follow, and the function that computes it, on the host.
//
//     #include "megbrain/custom/custom.h"
//     CUSTOM_OP_REG_BEGIN(Scale)
//     void compute(const std::vector<Tensor>& in, const Param& params, std::vector<Tensor>& out) {
//         for (size_t i = 0; i < in[0].size(); ++i)
//             out[0].data<float>()[i] = in[0].data<float>()[i] * params["factor"].as<float>();
//     }
//     CUSTOM_OP_REG(Scale)
//         .add_inputs(1).add_outputs(1).add_param("factor", 2.f).set_compute("x86", compute);
//     CUSTOM_OP_REG_END(Scale)
//
// What a function throws becomes an error of the call. Shapes, dtypes and parameters are checked;
// the indices that a kernel computes are its own affair. All names are hidden: two libraries never
// share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "megbrain/custom/values.h"
#include "megjit/custom_op.h"

#pragma GCC visibility push(hidden)
namespace custom {

// tensor[i][j]..., with no check of the indices.
template <class T, size_t N>
class TensorAccessor {
public:
    TensorAccessor(T* data, const size_t* extents, const ptrdiff_t* strides)
        : data_(data), extents_(extents), strides_(strides) {}
    size_t size(size_t axis) const { return extents_[axis]; }
    decltype(auto) operator[](size_t i) const {
        T* const row = data_ + static_cast<ptrdiff_t>(i) * strides_[0];
        if constexpr (N == 1) return static_cast<T&>(*row);
        else return TensorAccessor<T, N - 1>(row, extents_ + 1, strides_ + 1);
    }

private:
    T* data_;
    const size_t* extents_;
    const ptrdiff_t* strides_;
};

// An operand: elements in row-major order. Those of inputs are not to be written.
class Tensor {
public:
    explicit Tensor(const megjit_buffer& buffer)
        : data_(buffer.data), dtype_(buffer.type.dtype), size_(1) {
        const auto axes = static_cast<size_t>(buffer.type.rank);
        extents_.assign(buffer.type.shape, buffer.type.shape + axes);
        strides_.assign(axes, 1);
        for (size_t i = axes; i-- > 0;) {
            strides_[i] = static_cast<ptrdiff_t>(size_);
            size_ *= extents_[i];
        }
    }
    Device device() const { return "x86"; }
    DType dtype() const { return dtype_; }
    Shape shape() const { return Shape(extents_); }
    size_t size() const { return size_; }  // elements
    std::vector<ptrdiff_t> stride() const { return strides_; }  // in elements

    void* data() const { return data_; }
    template <class T>
    T* data() const {
        if (!dtype_.is<std::remove_const_t<T>>())
            throw std::invalid_argument("the elements of a tensor of " + dtype_.str() +
                                        " are of another type");
        return static_cast<T*>(data_);
    }
    // Good as long as this.
    template <class T, size_t N>
    TensorAccessor<T, N> accessor() const {
        if (N != extents_.size())
            throw std::invalid_argument("an accessor of " + std::to_string(N) +
                                        " axes for the shape " + shape().str());
        return {data<T>(), extents_.data(), strides_.data()};
    }

private:
    void* data_;
    DType dtype_;
    size_t size_;
    std::vector<size_t> extents_;
    std::vector<ptrdiff_t> strides_;
};

using DeviceInfer = void (*)(const std::vector<Device>&, const Param&, std::vector<Device>&);
using DTypeInfer = void (*)(const std::vector<DType>&, const Param&, std::vector<DType>&);
using ShapeInfer = void (*)(const std::vector<Shape>&, const Param&, std::vector<Shape>&);
using Compute = void (*)(const std::vector<Tensor>&, const Param&, std::vector<Tensor>&);
using DTypes = std::unordered_set<std::string>;

// One op. What is not said follows the first input: dtype, shape and place of each output.
class CustomOp {
public:
    explicit CustomOp(std::string name) : name_(std::move(name)) {}
    CustomOp(const CustomOp&) = delete;

    CustomOp& set_description(std::string text) {
        doc_ = std::move(text);
        return *this;
    }
    CustomOp& add_input(std::string name, DTypes dtypes = {"float32"}, int ndim = -1) {
        return add(inputs_, std::move(name), dtypes, ndim);
    }
    CustomOp& add_input(std::string name, std::string, DTypes dtypes, int ndim = -1) {
        return add(inputs_, std::move(name), dtypes, ndim);
    }
    CustomOp& add_output(std::string name, DTypes dtypes = {"float32"}, int ndim = -1) {
        return add(outputs_, std::move(name), dtypes, ndim);
    }
    CustomOp& add_output(std::string name, std::string, DTypes dtypes, int ndim = -1) {
        return add(outputs_, std::move(name), dtypes, ndim);
    }
    CustomOp& add_inputs(size_t count) {
        while (count-- > 0) add_input("input_" + std::to_string(inputs_.size()));
        return *this;
    }
    CustomOp& add_outputs(size_t count) {
        while (count-- > 0) add_output("output_" + std::to_string(outputs_.size()));
        return *this;
    }
    CustomOp& add_param(std::string name, ParamVal fallback) {
        params_.add(std::move(name), std::move(fallback));
        return *this;
    }
    CustomOp& add_param(std::string name, std::string, ParamVal fallback) {
        return add_param(std::move(name), std::move(fallback));
    }
    CustomOp& set_device_infer(DeviceInfer infer) { return device_infer_ = infer, *this; }
    CustomOp& set_dtype_infer(DTypeInfer infer) { return dtype_infer_ = infer, *this; }
    CustomOp& set_shape_infer(ShapeInfer infer) { return shape_infer_ = infer, *this; }
    // "x86" or "cpu" is the host; functions for other places are kept out.
    CustomOp& set_compute(const std::string& device, Compute compute) {
        if (device == "x86" || device == "cpu") compute_ = compute;
        return *this;
    }
    CustomOp& set_compute(Compute compute) { return set_compute("x86", compute); }
    // The op of this library that computes the gradients of the inputs: from those of the
    // outputs, the inputs and, if it takes so many operands, the outputs. It gets this op's
    // parameters of the same names.
    CustomOp& set_gradient(std::string op) {
        gradient_ = std::move(op);
        return *this;
    }

    megjit_op shown() {
        shown_params_.clear();
        for (const auto& [name, value] : params_.all()) {
            megjit_param param{};
            param.name = name.c_str();
            value.show(param);
            shown_params_.push_back(param);
        }
        shown_inputs_ = show(inputs_), shown_outputs_ = show(outputs_);
        megjit_op op{};
        op.name = name_.c_str(), op.doc = doc_.c_str();
        op.inputs = shown_inputs_.data(), op.input_count = static_cast<uint32_t>(inputs_.size());
        op.outputs = shown_outputs_.data(),
        op.output_count = static_cast<uint32_t>(outputs_.size());
        op.params = shown_params_.data(),
        op.param_count = static_cast<uint32_t>(shown_params_.size());
        op.gradient = gradient_.empty() ? nullptr : gradient_.c_str();
        op.self = this;
        op.infer = [](void* self, const megjit_type* inputs, const megjit_param* params,
                      megjit_type* outputs, char* error, size_t size) {
            return told(error, size,
                        [&] { static_cast<CustomOp*>(self)->infer(inputs, params, outputs); });
        };
        op.compute = [](void* self, const megjit_buffer* inputs, const megjit_param* params,
                        const megjit_buffer* outputs, char* error, size_t size) {
            return told(error, size,
                        [&] { static_cast<CustomOp*>(self)->compute(inputs, params, outputs); });
        };
        return op;
    }

private:
    struct Operand {
        std::string name, dtypes;
        int ndim = -1;
    };
    CustomOp& add(std::deque<Operand>& list, std::string name, const DTypes& dtypes, int ndim) {
        Operand operand{std::move(name), "", ndim};
        for (const std::string& dtype : dtypes) operand.dtypes += DType(dtype).str() + " ";
        if (!operand.dtypes.empty()) operand.dtypes.pop_back();
        list.push_back(std::move(operand));
        return *this;
    }
    static std::vector<megjit_operand> show(const std::deque<Operand>& list) {
        std::vector<megjit_operand> shown;
        for (const Operand& each : list)
            shown.push_back({each.name.c_str(), each.dtypes.c_str(), each.ndim});
        return shown;
    }
    template <class Do>
    static int told(char* error, size_t size, Do run) noexcept {
        try {
            run();
            return 0;
        } catch (const std::exception& thrown) {
            std::strncpy(error, thrown.what(), size - 1);
            return 1;
        } catch (...) {
            std::strncpy(error, "threw something that is not a std::exception", size - 1);
            return 1;
        }
    }
    Param read(const megjit_param* params) const {
        Param result;
        for (size_t i = 0; i < params_.all().size(); ++i)
            result.add(params[i].name, ParamVal::read(params[i]));
        return result;
    }
    // What `by` makes of the inputs; without it the outputs are like the first input.
    template <class T, class By>
    std::vector<T> inferred(const std::vector<T>& inputs, const Param& params, By by,
                            T alone) const {
        std::vector<T> outputs(outputs_.size(), inputs.empty() ? alone : inputs[0]);
        if (by) by(inputs, params, outputs);
        if (outputs.size() != outputs_.size())
            throw std::length_error("infers another number of outputs than it has");
        return outputs;
    }
    void infer(const megjit_type* inputs, const megjit_param* params, megjit_type* outputs) const {
        std::vector<DType> dtypes;
        std::vector<Shape> shapes;
        for (size_t i = 0; i < inputs_.size(); ++i) {
            dtypes.emplace_back(inputs[i].dtype);
            shapes.emplace_back(
                std::vector<size_t>(inputs[i].shape, inputs[i].shape + inputs[i].rank));
        }
        const Param values = read(params);
        const std::vector<Device> devices(inputs_.size());
        for (const Device& device : inferred(devices, values, device_infer_, Device()))
            if (device != "x86")
                throw std::invalid_argument("its results lie on the device " + device.str() +
                                            ", not on x86");
        dtypes = inferred(dtypes, values, dtype_infer_, DType());
        shapes = inferred(shapes, values, shape_infer_, Shape{1});
        for (size_t i = 0; i < outputs_.size(); ++i) {
            const Operand& wanted = outputs_[i];
            if ((" " + wanted.dtypes + " ").find(" " + dtypes[i].str() + " ") == std::string::npos)
                throw std::invalid_argument(wanted.name + " is inferred as " + dtypes[i].str() +
                                            ", it may be " + wanted.dtypes);
            if (wanted.ndim >= 0 ? shapes[i].ndim() != static_cast<size_t>(wanted.ndim)
                                 : shapes[i].ndim() > MEGJIT_MAX_RANK)
                throw std::invalid_argument(wanted.name + " is inferred with the shape " +
                                            shapes[i].str());
            outputs[i].dtype = dtypes[i].c_str();
            outputs[i].rank = static_cast<int32_t>(shapes[i].ndim());
            for (size_t axis = 0; axis < shapes[i].ndim(); ++axis)
                outputs[i].shape[axis] = static_cast<int64_t>(shapes[i][axis]);
        }
    }
    void compute(const megjit_buffer* inputs, const megjit_param* params,
                 const megjit_buffer* outputs) const {
        if (!compute_)
            throw std::logic_error("has no function for x86: call set_compute(\"x86\", ...)");
        const std::vector<Tensor> read_from(inputs, inputs + inputs_.size());
        std::vector<Tensor> write_to(outputs, outputs + outputs_.size());
        compute_(read_from, read(params), write_to);
    }

    std::string name_, doc_, gradient_;
    std::deque<Operand> inputs_, outputs_;  // addresses of texts stay valid
    Param params_;
    DeviceInfer device_infer_ = nullptr;
    DTypeInfer dtype_infer_ = nullptr;
    ShapeInfer shape_infer_ = nullptr;
    Compute compute_ = nullptr;
    std::vector<megjit_operand> shown_inputs_, shown_outputs_;
    std::vector<megjit_param> shown_params_;
};

inline std::deque<CustomOp>& all_ops() {
    static std::deque<CustomOp> ops;
    return ops;
}

inline const megjit_library* library() {
    static const std::vector<megjit_op> ops = [] {
        std::vector<megjit_op> shown;
        for (CustomOp& op : all_ops()) shown.push_back(op.shown());
        return shown;
    }();
    static const megjit_library library{MEGJIT_CUSTOM_OP_ABI, static_cast<uint32_t>(ops.size()),
                                        ops.data()};
    return &library;
}

}  // namespace custom
#pragma GCC visibility pop

extern "C" __attribute__((visibility("default"), used)) inline const megjit_library*
megjit_custom_ops(void) {
    return custom::library();
}

// What stands between these two is in a namespace of its own.
#define CUSTOM_OP_REG_BEGIN(name) \
    namespace custom { \
    namespace op_##name {
#define CUSTOM_OP_REG_END(name) \
    } \
    }
#define CUSTOM_OP_REG(name) \
    [[maybe_unused]] static ::custom::CustomOp& registered_##name = \
        ::custom::all_ops().emplace_back(#name)
