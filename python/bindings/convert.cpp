// How Python values become tensors and come back.
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "jit/step/step.h"
#include "python/bindings/capture.h"
#include "python/bindings/handle.h"
#include "runtime/core/host_view.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/mutex.h"
#include "runtime/ops/known.h"

namespace megjit::python {
namespace {

PyTypeObject* result_class = nullptr;
PyTypeObject* base_class = nullptr;
PyObject* variables = nullptr;

// Tensors that nobody holds any more: the next results come to life in them, for nanobind takes
// 400 instructions to make an object and to let it go. To nanobind they are alive, without a value.
struct Dead {
    static constexpr int kMost = 128;
    PyObject* objects[kMost];
    int count = 0;
    Py_ssize_t dict = 0, weak_references = 0;  // where an object has them
    destructor free = nullptr;  // nanobind's own
} dead;

nb::object numpy() { return nb::module_::import_("numpy"); }

// np.dtype objects by DType; made at first use and kept for the life of the process.
PyObject* dtype_objects[runtime::kDTypeCount] = {};

// A view of an ndarray's bytes. Extension dtypes such as bfloat16 have no buffer: it shows their
// bytes.
class ArrayBytes {
public:
    ArrayBytes(nb::handle array, bool writable) {
        nb::object bytes = array.attr("reshape")(-1).attr("view")("uint8");
        if (PyObject_GetBuffer(bytes.ptr(), &view_, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO) != 0)
            throw nb::python_error();
    }
    ~ArrayBytes() { PyBuffer_Release(&view_); }
    void* data() const { return view_.buf; }
    size_t size() const { return static_cast<size_t>(view_.len); }

private:
    Py_buffer view_{};
};

runtime::Category category_of_number(PyObject* object) {
    if (PyBool_Check(object)) return runtime::Category::boolean;
    return PyLong_Check(object) ? runtime::Category::integer : runtime::Category::floating;
}

double number_value(PyObject* object) {
    const double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred()) throw nb::python_error();
    return value;
}

DType default_dtype(runtime::Category category) {
    return category == runtime::Category::boolean   ? DType::b8
           : category == runtime::Category::integer ? DType::i32
                                                    : DType::f32;
}

// The numbers that an integer dtype holds; its truncated values lie between low - 1 and high + 1.
// An unsigned dtype takes -1 as well, for the number whose bits are all set.
struct Range {
    double low = 0, high = 0;
    // For int64, low - 1 is low, and high + 1 is 2^63, as doubles.
    bool holds(double value) const {
        return (value > low - 1 || value == std::min(low, -1.0)) && value < high + 1;
    }
    // As bits: ~3 is a mask of an unsigned dtype, too.
    bool holds_bits(double value) const { return value >= -(high - low + 1) / 2 && value <= high; }
};
Range range_of(DType dtype) {
    const double half = std::ldexp(1.0, static_cast<int>(8 * runtime::size_of(dtype)) - 1);
    if (dtype == DType::u8 || dtype == DType::u16) return {0, 2 * half - 1};
    return {-half, half - 1};
}
bool is_checked(DType dtype) {
    return info(dtype).category == runtime::Category::integer &&
           !runtime::debug().overflow_is_silent;
}

[[noreturn]] void refuse_overflow(nb::handle number, DType dtype, const std::string& place) {
    const Range range = range_of(dtype);
    std::string text = runtime::cat(
        nb::cast<std::string>(nb::str(number)), place, " does not fit ", info(dtype).name,
        ", which holds ", static_cast<int64_t>(range.low), " to ", static_cast<int64_t>(range.high),
        "\n  fix: give a float dtype, or set MEGJIT_OVERFLOW=silent for another number in its place");
    if (const std::string where = user_location(); !where.empty()) text += "\n  at:  " + where;
    PyErr_SetString(PyExc_OverflowError, text.c_str());
    throw nb::python_error();
}

// Elements of an ndarray that will be integers of `dtype`.
void check_array(nb::handle array, DType dtype) {
    const std::string kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
    if (!is_checked(dtype) || (kind != "i" && kind != "u" && kind != "f") ||
        (kind == "i" && dtype == DType::i64) || nb::cast<int64_t>(array.attr("size")) == 0)
        return;
    const Range range = range_of(dtype);
    for (const auto& [extreme, place] : {std::pair("max", "argmax"), std::pair("min", "argmin")}) {
        const nb::object value = array.attr(extreme)();
        if (range.holds(nb::cast<double>(nb::float_(value)))) continue;
        const nb::object index =
            numpy().attr("unravel_index")(array.attr(place)(), array.attr("shape"));
        const nb::object plain = nb::steal(PySequence_List(index.ptr()));
        std::string at;
        for (nb::handle part : plain)
            at += (at.empty() ? "" : ", ") + std::to_string(nb::cast<int64_t>(nb::int_(part)));
        refuse_overflow(value.attr("item")(), dtype, at.empty() ? "" : " at [" + at + "]");
    }
}

runtime::Device* default_place = nullptr;
thread_local runtime::Device* place_of_thread = nullptr;  // OnDevice

// A Python integer that a double does not hold exactly, and an int64 does.
std::optional<int64_t> long_integer(PyObject* object, DType dtype) {
    if (dtype != DType::i64 || !PyLong_Check(object)) return {};
    int overflows = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflows);
    constexpr int64_t kExact = int64_t{1} << 53;
    if (overflows || (value >= -kExact && value <= kExact)) return {};
    return value;
}

TensorRef number_tensor(PyObject* object, DType dtype, bool constant, runtime::Device& device,
                        bool is_bits = false) {
    if (const auto exact = long_integer(object, dtype)) {
        const TensorRef tensor =
            runtime::tensor_from_host(device, {.dtype = dtype, .shape = {}}, &*exact);
        tensor->is_constant = constant;
        return tensor;
    }
    const double value = number_value(object);
    if (info(dtype).category == runtime::Category::integer && !range_of(dtype).holds(value) &&
        !(is_bits && range_of(dtype).holds_bits(value)))
        check_number(nb::handle(object), dtype);
    const TensorRef number = runtime::scalar_tensor(value, dtype);
    if (!constant && !device.is_host()) return new_tensor(number->type(), number->data(), device);
    const TensorRef cached = runtime::copied_to(number, device);
    if (constant) return cached;
    return runtime::make_tensor(cached->type(), cached->storage());
}

// Is the number a value of the dtype, so that a comparison compares values?
bool is_value_of(DType dtype, double number) {
    if (info(dtype).category != runtime::Category::integer) return true;
    const Range range = range_of(dtype);
    return number >= range.low && number <= range.high;
}

// What a comparison sees of a number beyond the range of its other operand.
TensorRef beyond(double value) {
    return runtime::scalar_tensor(value < 0 ? -HUGE_VAL : HUGE_VAL, DType::f32);
}

bool is_number(PyObject* object) { return PyFloat_Check(object) || PyLong_Check(object); }

}  // namespace

void check_number(nb::handle number, DType dtype) {
    if (is_checked(dtype) && !long_integer(number.ptr(), dtype) &&
        !range_of(dtype).holds(number_value(number.ptr())))
        refuse_overflow(number, dtype, "");
}

OnDevice::OnDevice(runtime::Device& device) : saved_(std::exchange(place_of_thread, &device)) {}
OnDevice::~OnDevice() { place_of_thread = saved_; }

runtime::Device& default_device() {
    if (place_of_thread) return *place_of_thread;
    return default_place ? *default_place : runtime::host_device();
}

runtime::Device& default_host() {
    return default_device().is_host() ? default_device() : runtime::host_device();
}

void set_default_device(const std::string& name) { default_place = &device_named(name); }

runtime::Device& device_named(const std::string& name) {
    if (name.empty()) return default_device();
    return runtime::find_device(name);
}

void set_tensor_class(nb::handle type) {
    result_class = reinterpret_cast<PyTypeObject*>(type.inc_ref().ptr());
    base_class = reinterpret_cast<PyTypeObject*>(nb::type<Handle>().ptr());
    dead.free = reinterpret_cast<destructor>(PyType_GetSlot(
        reinterpret_cast<PyTypeObject*>(nb::type<jit::TraceOptions>().ptr()), Py_tp_dealloc));
    dead.dict = nb::cast<Py_ssize_t>(type.attr("__dictoffset__"));
    dead.weak_references = nb::cast<Py_ssize_t>(type.attr("__weakrefoffset__"));
#ifndef Py_LIMITED_API
    result_class->tp_dealloc = slot_dealloc;  // Tensor adds nothing that a class statement's frees
#endif
    user_location();  // finds the package's folder once, before threads could wait for each other
                      // there
}

PyTypeObject* tensor_class() { return result_class; }

bool is_tensor(PyObject* object) {
    return Py_TYPE(object) == result_class ||
           (base_class && PyObject_TypeCheck(object, base_class));
}

Handle& handle_of(PyObject* object) { return *nb::inst_ptr<Handle>(nb::handle(object)); }

const TensorRef& value_of(PyObject* object) {
    if (!is_tensor(object))
        runtime::user_error(
            {.what =
                 runtime::cat("a Tensor is wanted, not a ",
                              nb::cast<std::string>(nb::steal(PyType_GetName(Py_TYPE(object)))))},
            runtime::ErrorKind::type);
    return handle_of(object).value();
}

Tensors values_of(nb::handle list) {
    Tensors result;
    result.reserve(nb::len(list));
    if (PyList_Check(list.ptr())) {
        for (Py_ssize_t i = 0; i < PyList_Size(list.ptr()); ++i)
            result.push_back(value_of(PyList_GetItem(list.ptr(), i)));
    } else {
        for (nb::handle item : list) result.push_back(value_of(item.ptr()));
    }
    return result;
}

const TensorRef& operand_of(PyObject* object) {
    const TensorRef& value = value_of(object);
    if (Capture* capture = Capture::current()) capture->note_operand(object);
    return value;
}

Tensors operands_of(nb::handle list) {
    Tensors result;
    for (nb::handle item : list) result.push_back(operand_of(item.ptr()));
    return result;
}

void set_variables(nb::object of_link) { variables = of_link.release().ptr(); }

PyObject* wrap_new(TensorRef value) {
    if (value->trace.is_edited()) [[unlikely]]
        return nb::borrow(variables)(value->trace.session, value->trace.value).release().ptr();
    return wrap_as(result_class, std::move(value));
}

PyObject* wrap_as(PyTypeObject* type, TensorRef value) {
    if (type == result_class && dead.count > 0) {
        PyObject* object = PyObject_Init(dead.objects[--dead.count], type);
        handle_of(object).set(std::move(value));
        PyObject_GC_Track(object);
        return object;
    }
    PyObject* object =
        nb::inst_alloc(nb::handle(reinterpret_cast<PyObject*>(type))).release().ptr();
    new (nb::inst_ptr<Handle>(nb::handle(object))) Handle{std::move(value)};
    nb::inst_mark_ready(nb::handle(object));
    return object;
}

void slot_dealloc(PyObject* tensor) {
    const auto holds = [tensor](Py_ssize_t offset) {
        return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(tensor) + offset) != nullptr;
    };
    if (Py_TYPE(tensor) != result_class || dead.count == Dead::kMost || holds(dead.dict) ||
        holds(dead.weak_references) || handle_of(tensor).is_empty())
        return dead.free(tensor);
    PyObject_GC_UnTrack(tensor);
    handle_of(tensor).set({});  // may run other Python code
    if (dead.count == Dead::kMost) return dead.free(tensor);
    dead.objects[dead.count++] = tensor;
    Py_DECREF(result_class);
}

nb::object wrap(TensorRef value) { return nb::steal(wrap_new(std::move(value))); }

nb::object wrap_all(std::span<const TensorRef> values) {
    if (values.size() == 1) return wrap(values[0]);
    nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
    for (size_t i = 0; i < values.size(); ++i)
        PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), wrap_new(values[i]));
    return tuple;
}

PyObject* wrap_results(runtime::Results results) {
    if (results.size() == 1) return wrap_new(std::move(results[0]));
    return wrap_all(results).release().ptr();
}

nb::object numpy_dtype(DType dtype) {
    PyObject*& known = dtype_objects[static_cast<int>(dtype)];
    if (!known) {
        nb::object name = dtype == DType::bf16
                              ? nb::object(nb::module_::import_("ml_dtypes").attr("bfloat16"))
                              : nb::object(nb::str(std::string(info(dtype).name).c_str()));
        known = numpy().attr("dtype")(name).release().ptr();
    }
    return nb::borrow(known);
}

DType dtype_from(nb::handle dtype) {
    for (int i = 0; i < runtime::kDTypeCount; ++i)
        if (dtype_objects[i] == dtype.ptr()) return static_cast<DType>(i);
    if (nb::isinstance<nb::str>(dtype))
        return runtime::dtype_from_name(nb::cast<std::string>(dtype));
    nb::object made = numpy().attr("dtype")(dtype);
    return runtime::dtype_from_name(nb::cast<std::string>(made.attr("name")));
}

namespace {

// Numbers that traced bodies make anew in each call, as optimizers do of their rates, lie on a
// device once: a step sends what has changed. Programs write over no memory with a second holder.
// The host's lock is held by all callers.
class KnownNumbers {
public:
    static KnownNumbers& instance() {
        static auto* const known = new KnownNumbers;  // outlives the devices' last work
        return *known;
    }
    static bool takes(const Type& type, const void* data, runtime::Device& device) {
        return data && runtime::context().tracer && !device.stream().is_inline() &&
               type.bytes() > 0 && type.bytes() <= jit::kNumberBytes;
    }
    // The number's memory; null where it is new, and the caller puts it here.
    runtime::Ref<runtime::Storage>& memory_of(const runtime::Device& device, size_t bytes,
                                              const void* data) {
        if (storages_.size() >= kMost) storages_.clear();
        uint64_t bits = 0;
        std::memcpy(&bits, data, bytes);
        return storages_[{&device, bytes, bits}];
    }

private:
    static constexpr size_t kMost = 256;
    std::map<std::tuple<const runtime::Device*, size_t, uint64_t>, runtime::Ref<runtime::Storage>>
        storages_;
};

TensorRef uploaded(const Type& type, const void* data, runtime::Device& device) {
    TensorRef tensor = runtime::empty_tensor(device, type);
    if (tensor->storage()->is_worth_listing()) tensor->storage()->list("Tensor", type);
    if (type.bytes() == 0) return tensor;
    if (device.stream().is_inline()) {
        device.stream().upload(tensor->data(), data, type.bytes());
    } else {  // the stream may be busy, or full
        const runtime::WithoutHostLock release;
        device.stream().upload(tensor->data(), data, type.bytes());
    }
    return tensor;
}

}  // namespace

TensorRef new_tensor(const Type& type, const void* data, runtime::Device& device) {
    try {
        if (!KnownNumbers::takes(type, data, device)) return uploaded(type, data, device);
        KnownNumbers& known = KnownNumbers::instance();
        if (const auto& storage = known.memory_of(device, type.bytes(), data))
            return runtime::make_tensor(type, storage);
        const TensorRef tensor = uploaded(type, data, device);
        // It is looked up again, as others may have the lock during an upload.
        known.memory_of(device, type.bytes(), data) = tensor->storage();
        return tensor;
    } catch (runtime::OutOfMemory& error) {
        error.say_what_for("Tensor " + to_string(type));
        throw;
    }
}

namespace {

bool is_sequence(nb::handle value) {
    return PyList_Check(value.ptr()) || PyTuple_Check(value.ptr());
}

[[noreturn]] void refuse_ragged() {
    runtime::user_error(
        {.what =
             "a Tensor cannot be made of a list that is ragged or holds other things than numbers",
         .fix = "give all rows one length; F.stack and F.concat join tensors"});
}

nb::object array_of(nb::handle value) {
    try {
        return numpy().attr("asarray")(value);
    } catch (nb::python_error& error) {
        if (is_sequence(value) &&
            std::string_view(error.what()).find("inhomogeneous") != std::string_view::npos)
            refuse_ragged();
        throw;
    }
}

}  // namespace

OurArray our_array(nb::handle value, std::optional<DType> wanted) {
    nb::object array = array_of(value);
    std::string name = nb::cast<std::string>(array.attr("dtype").attr("name"));
    if (name == "object" && is_sequence(value)) refuse_ragged();  // by a NumPy before 1.24
    const bool is_empty_list =
        nb::cast<int64_t>(array.attr("size")) == 0 && !nb::hasattr(value, "dtype");
    // 64 bits are kept where somebody asks for them.
    const bool keeps = wanted && (wanted == DType::f64 || wanted == DType::i64) &&
                       name.find("complex") == std::string::npos && name != "object";
    const bool is_wide = !keeps && (name == "int64" || name == "uint64" || name == "uint32");
    if (keeps) {
        check_array(array, *wanted);
        name = info(*wanted).name;
    } else if (name == "float64" || is_empty_list ||
               (is_wide && wanted && runtime::is_floating(*wanted))) {
        name = "float32";
    } else if (is_wide) name = "int32";
    else if (name == "complex128") name = "complex64";
    const DType dtype = runtime::dtype_from_name(name);
    if (wanted && *wanted != dtype) check_array(array, *wanted);
    if (is_wide) check_array(array, dtype);
    array = numpy()
                .attr("ascontiguousarray")(
                    array.attr("astype")(numpy_dtype(dtype), nb::arg("copy") = false))
                .attr("reshape")(array.attr("shape"));
    Type type{.dtype = dtype};
    for (nb::handle extent : array.attr("shape")) type.shape.push_back(nb::cast<int64_t>(extent));
    return {type, std::move(array)};
}

namespace {

// A view of an ndarray or a NumPy scalar that tensors copy as it lies: contiguous, of a dtype that
// they have. Asking NumPy for all of it takes ten times as long (3 us).
class PlainArray {
public:
    explicit PlainArray(nb::handle value) {
        static auto* const classes =
            nb::make_tuple(numpy().attr("ndarray"), numpy().attr("generic")).release().ptr();
        if (PyObject_IsInstance(value.ptr(), classes) != 1) return;
        has_view_ = PyObject_GetBuffer(value.ptr(), &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0;
        PyErr_Clear();  // NumPy gives no such view
        if (has_view_) dtype_ = dtype_of_format(view_.format);
    }
    ~PlainArray() {
        if (has_view_) PyBuffer_Release(&view_);
    }
    PlainArray(const PlainArray&) = delete;
    PlainArray& operator=(const PlainArray&) = delete;

    // Nothing where the elements must be converted.
    std::optional<Type> type() const {
        if (!dtype_ || view_.ndim > runtime::kMaxRank) return {};
        Type type{.dtype = *dtype_};
        for (int axis = 0; axis < view_.ndim; ++axis) type.shape.push_back(view_.shape[axis]);
        return type;
    }
    const void* data() const { return view_.buf; }

private:
    static std::optional<DType> dtype_of_format(std::string_view format) {
        constexpr std::pair<std::string_view, DType> kDTypes[] = {
            {"f", DType::f32}, {"i", DType::i32}, {"?", DType::b8},
            {"B", DType::u8},  {"b", DType::i8},  {"e", DType::f16},
            {"h", DType::i16}, {"H", DType::u16}, {"Zf", DType::c64}};
        for (const auto& [name, dtype] : kDTypes)
            if (name == format) return dtype;
        return {};
    }

    Py_buffer view_{};
    bool has_view_ = false;
    std::optional<DType> dtype_;
};

}  // namespace

TensorRef tensor_from_numpy(nb::handle value, bool constant, runtime::Device& device,
                            std::optional<DType> wanted) {
    const PlainArray plain(value);
    if (const auto type = plain.type(); type && wanted.value_or(type->dtype) == type->dtype) {
        const TensorRef tensor = new_tensor(*type, type->bytes() ? plain.data() : nullptr, device);
        tensor->is_constant = constant;
        return tensor;
    }
    const auto [type, array] = our_array(value, wanted);
    const TensorRef tensor =
        new_tensor(type, type.bytes() ? ArrayBytes(array, false).data() : nullptr, device);
    tensor->is_constant = constant;
    return tensor;
}

TensorRef tensor_from(nb::handle value, bool constant, runtime::Device& device,
                      std::optional<DType> wanted) {
    if (is_tensor(value.ptr())) return value_of(value.ptr());
    if (is_number(value.ptr()))
        return number_tensor(value.ptr(),
                             wanted.value_or(default_dtype(category_of_number(value.ptr()))),
                             constant, device);
    if (value.is_none())
        runtime::user_error({.what = "the operand is None and is not supported.",
                             .fix = "pass a Tensor, a number or an array"},
                            runtime::ErrorKind::type);
    return tensor_from_numpy(value, constant, device, wanted);
}

const TensorRef& value_to_read(PyObject* tensor) {
    if (Capture* capture = Capture::current()) capture->note_held(tensor);
    return value_of(tensor);
}

TensorRef host_row_major(TensorRef tensor) {
    if (Capture* capture = Capture::current()) capture->note_read(tensor);
    runtime::Tracer* tracer = runtime::context().tracer;
    const auto read = [&] {
        if (tracer) tracer->on_read(*tensor);
        runtime::require_data(*tensor);
        return runtime::readable_on(runtime::host_device(), runtime::row_major(tensor));
    };
    if (!tracer && tensor->device().stream().is_inline()) return read();
    const runtime::WithoutHostLock release;  // a segment may run, work may have to be waited for
    return read();
}

nb::object to_numpy(TensorRef given) {
    const TensorRef value = host_row_major(std::move(given));
    const runtime::HostView data(value);
    const Type& type = value->type();
    nb::object shape = nb::steal(PyTuple_New(type.rank()));
    for (int axis = 0; axis < type.rank(); ++axis)
        PyTuple_SetItem(shape.ptr(), axis, PyLong_FromLongLong(type.shape[axis]));
    nb::object array = numpy().attr("empty")(shape, numpy_dtype(type.dtype));
    if (type.bytes()) std::memcpy(ArrayBytes(array, true).data(), data.data(), type.bytes());
    return array;
}

TensorRef cast_now(const TensorRef& value, DType dtype) {
    if (value->dtype() == dtype) return value;
    TensorRef result = runtime::compute(runtime::ops::cast(), {std::string(info(dtype).name)},
                                        {&value, 1}, &value->device())[0];
    result->is_constant = value->is_constant;
    return result;
}

bool is_square(const runtime::OpDef& op, PyObject* const* args, size_t count) {
    static const runtime::OpDef& pow = runtime::find_op("pow");
    if (&op != &pow || count != 2 || !is_tensor(args[0])) return false;
    const bool is_two = PyLong_Check(args[1])    ? PyLong_AsLong(args[1]) == 2
                        : PyFloat_Check(args[1]) ? PyFloat_AsDouble(args[1]) == 2
                                                 : false;
    PyErr_Clear();  // no long holds the integer
    return is_two && runtime::is_floating(value_of(args[0])->dtype());
}

void operands_from(PyObject* const* args, const runtime::OpDef& op, std::span<TensorRef> result) {
    const size_t count = result.size();
    if (Capture* capture = Capture::current())
        for (size_t i = 0; i < count; ++i)
            if (is_tensor(args[i])) capture->note_operand(args[i]);
    bool any_number = false;
    for (size_t i = 0; i < count; ++i) {
        PyObject* arg = args[i];
        if (is_tensor(arg)) result[i] = handle_of(arg).value();
        else if (is_number(arg)) any_number = true;
        else result[i] = tensor_from(nb::handle(arg), true, runtime::host_device());
    }
    if (!any_number) return;
    // A Python scalar only matters when its category ranks above every tensor's.
    bool any_tensor = false;
    DType dtype = DType::f32;
    runtime::Category highest = runtime::Category::boolean;
    for (size_t i = 0; i < count; ++i) {
        if (!result[i]) {
            highest = std::max(highest, category_of_number(args[i]));
        } else if (op.promotion != runtime::Promotion::none) {
            dtype = any_tensor ? runtime::promote(dtype, result[i]->dtype()) : result[i]->dtype();
            any_tensor = true;
        }
    }
    if (op.promotion == runtime::Promotion::none || !any_tensor || highest > info(dtype).category) {
        const DType numbers = default_dtype(highest);
        dtype = any_tensor && op.promotion != runtime::Promotion::none
                    ? runtime::promote(dtype, numbers)
                    : numbers;
        if (any_tensor && highest > info(dtype).category) dtype = numbers;
    }
    for (size_t i = 0; i < count; ++i) {
        if (result[i]) continue;
        // int32 + 1.5: the scalar is a float32, whatever its neighbour becomes.
        const DType own = op.promotion == runtime::Promotion::none
                              ? default_dtype(category_of_number(args[i]))
                              : dtype;
        result[i] =
            op.result == runtime::Result::boolean && !is_value_of(own, number_value(args[i]))
                ? beyond(number_value(args[i]))
                : number_tensor(args[i], own, true, runtime::host_device(),
                                op.promotion == runtime::Promotion::integer);
    }
}

namespace {

// Operands whose references are not counted: the Tensors keep the values.
struct Lent {
    static constexpr size_t kMost = 4;
    Lent() {}
    ~Lent() {}
    Lent(const Lent&) = delete;
    union {
        TensorRef values[kMost];
    };
};

}  // namespace

PyObject* followed(const runtime::OpDef& op, const runtime::Attrs& attrs, PyObject* const* args,
                   size_t count) {
    const runtime::Context& here = runtime::context();
    if (!here.tracer || count > Lent::kMost) return nullptr;
    Lent lent;
    for (size_t i = 0; i < count; ++i) {
        if (!is_tensor(args[i])) return nullptr;
        const Handle& handle = handle_of(args[i]);
        if (handle.is_empty()) return nullptr;
        new (&lent.values[i]) TensorRef(handle.value().get());
    }
    runtime::Results results = runtime::follow(here, op, attrs, {lent.values, count});
    return results.size() > 0 ? wrap_results(std::move(results)) : nullptr;
}

namespace {

nb::object interned(const char* text) { return nb::steal(PyUnicode_InternFromString(text)); }
const char* utf8_of(nb::handle text) { return PyUnicode_AsUTF8AndSize(text.ptr(), nullptr); }

}  // namespace

std::string user_location() {
    if (!Py_IsInitialized()) return "";
    if (!PyGILState_Check()) runtime::Mutex::refuse_wait("the host's lock");
    nb::gil_scoped_acquire gil;
    static const std::string package = [] {
        nb::object file = nb::module_::import_("megengine").attr("__file__");
        std::string path = nb::cast<std::string>(file);
        return path.substr(0, path.rfind('/') + 1);
    }();
    // It reads attributes: the stable ABI knows no fields.
    static const auto& [co_filename, co_name, f_back] = *new std::array<nb::object, 3>{
        interned("co_filename"), interned("co_name"), interned("f_back")};
    const auto get = [](nb::handle of, nb::handle name) {
        return nb::steal(PyObject_GetAttr(of.ptr(), name.ptr()));
    };
    nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
    std::string result;
    for (; frame.is_valid() && !frame.is_none(); frame = get(frame, f_back)) {
        const auto at = reinterpret_cast<PyFrameObject*>(frame.ptr());
        const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(at)));
        const nb::object filename = get(code, co_filename);
        const char* file = filename.is_valid() ? utf8_of(filename) : nullptr;
        if (!file || std::string_view(file).substr(0, package.size()) == package) continue;
        const nb::object function = get(code, co_name);
        const char* name = function.is_valid() ? utf8_of(function) : nullptr;
        result = runtime::cat(file, ":", PyFrame_GetLineNumber(at));
        if (name && name[0] != '<') result += runtime::cat(" in ", name);
        break;
    }
    PyErr_Clear();
    return result;
}

}  // namespace megjit::python
