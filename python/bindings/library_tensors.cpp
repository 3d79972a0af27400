// All tensors of a call, shared with another library by the C functions that it has for its class
// of them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "python/bindings/guest.h"
#include "python/bindings/replay_plain.h"
#include "python/bindings/shared_memory.h"
#include "runtime/core/rematerializer.h"
#include "runtime/core/tensor.h"

namespace megjit::python {
namespace {

// How a result is wanted: its dtype (null: no dtype of ours, never met) and its strides (null: any
// order).
struct Wanted {
    std::optional<DType> dtype;
    std::optional<std::vector<int64_t>> steps;
    bool is_met_by(const Type& type) const {
        if (type.dtype != dtype) return false;
        const auto own = steps_of(type);
        if (steps && steps->size() != static_cast<size_t>(type.rank())) return false;
        for (int axis = 0; steps && axis < type.rank(); ++axis)
            if (type.shape[axis] != 1 && own[axis] != (*steps)[static_cast<size_t>(axis)])
                return false;
        return true;
    }
};

[[noreturn]] void wrong_type(const char* what, nb::handle given) {
    runtime::user_error(
        {.what =
             runtime::cat("Exchange: ", what,
                          nb::cast<std::string>(nb::steal(PyType_GetName(Py_TYPE(given.ptr())))))},
        runtime::ErrorKind::type);
}

const Wanted& wanted_of(nb::handle object) {
    if (!nb::isinstance<Wanted>(object) || !nb::inst_ready(object))
        wrong_type("a Wanted says how a result lies, not a ", object);
    return *nb::inst_ptr<Wanted>(object);
}

// Copies the list: the calls that follow are Python's, and may change it.
std::vector<nb::object> objects_of(const nb::list& list) {
    std::vector<nb::object> objects;
    objects.reserve(nb::len(list));
    for (nb::handle each : list) objects.push_back(nb::borrow(each));
    return objects;
}

// `gpu`: the number of the GPU whose tensors are shared; none: those of the host are.
class Exchange {
public:
    Exchange(nb::type_object type, std::optional<int> gpu) : type_(std::move(type)) {
        const nb::object capsule = nb::getattr(type_, "__dlpack_c_exchange_api__");
        functions_ = static_cast<const CFunctions*>(
            PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
        if (!functions_) throw nb::python_error();
        while (functions_ && functions_->major != 1) functions_ = functions_->older;
        if (!functions_ || !functions_->tensor_of || !functions_->object_of)
            refuse("its class has other functions for it");
        if (!gpu) return;
        number_ = *gpu;
        const auto module = nb::cast<std::string>(nb::getattr(type_, "__module__"));
        guest_ = &guest_device(*functions_, module.substr(0, module.find('.')), number_);
    }

    // The device where values of theirs lie; "" for the host.
    std::string place() const { return guest_ ? std::string(guest_->name()) : std::string(); }

    // All tensors of a call, ours in the place of theirs. What cannot be shared in place, or is no
    // tensor, stays unchanged. On a GPU what is queued from here on runs where the library's own
    // work does.
    struct Shared {
        nb::list values = {};
        std::vector<size_t> left = {};  // places of tensors that could not be shared
    };
    Shared ours(const nb::list& values) const {
        release_abandoned();
        if (guest_) follow_library(*functions_, *guest_, number_);
        Shared result;
        for (const nb::object& value : objects_of(values)) {
            const bool is_theirs = PyObject_TypeCheck(value.ptr(), type());
            TensorRef tensor = is_theirs ? over(value, false) : nullptr;
            if (!tensor && is_theirs) result.left.push_back(nb::len(result.values));
            result.values.append(tensor ? wrap(std::move(tensor)) : value);
        }
        return result;
    }

    // One tensor of theirs as ours. BufferError where it cannot be shared as it lies.
    nb::object lent(nb::handle value, bool is_writable) const {
        TensorRef tensor = over(value, is_writable);
        if (!tensor) refuse("it does not lie where and as tensors here do");
        return wrap(std::move(tensor));
    }

    // A tensor of that one's type over no memory, for plans.
    nb::object absent(const Handle& form) const {
        static char nowhere = 0;
        runtime::Device& device = guest_ ? *guest_ : runtime::host_device();
        const Type& type = form.value()->type();
        return wrap(runtime::make_tensor(
            type, runtime::Storage::borrow(device, &nowhere, type.bytes(), nullptr)));
    }

    // Makes a call whose operands and results can all be shared as wanted, and empties `values`.
    // Returns None, and leaves them, where one cannot be shared or no such call was recorded for
    // them: the caller makes the call in other ways. No tensor of ours becomes a Python object.
    nb::object replayed(nb::handle function, const nb::list& wanted, nb::list values) const {
        release_abandoned();
        if (guest_) follow_library(*functions_, *guest_, number_);
        Shared results;
        {
            Tensors given;
            given.reserve(nb::len(values));
            for (const nb::object& value : objects_of(values)) {
                if (!PyObject_TypeCheck(value.ptr(), type())) return nb::none();
                given.push_back(over(value, false));
                if (!given.back()) return nb::none();
            }
            const std::optional<Tensors> found = replay_plain(function, given);
            release_here(std::move(given));
            if (!found) return nb::none();
            results = theirs(*found, wanted);
        }
        if (guest_) release_abandoned();
        if (!results.left.empty()) return nb::none();
        values.clear();
        return std::move(results.values);
    }

    // Makes theirs over the memory of values that nobody else has, and that are as wanted.
    Shared theirs(const nb::list& values, const nb::list& wanted) const {
        const auto objects = objects_of(values);
        return theirs(objects.size(), wanted, [&](size_t place) -> const TensorRef& {
            return value_of(objects[place].ptr());
        });
    }
    Shared theirs(const Tensors& values, const nb::list& wanted) const {
        return theirs(values.size(), wanted,
                      [&](size_t place) -> const TensorRef& { return values[place]; });
    }

    // Ends a call: what the library queues from now on comes behind it.
    void end() const {
        if (guest_) let_library_follow(*functions_, *guest_, number_);
    }

private:
    struct Given {
        TensorRef value;
        std::array<int64_t, runtime::kMaxRank> shape, steps;
        CManaged managed;
    };

    template <class ValueAt>
    Shared theirs(size_t count, const nb::list& wanted, const ValueAt& value_at) const {
        end();
        const auto forms = objects_of(wanted);
        if (count != forms.size())
            runtime::user_error({.what = runtime::cat("Exchange: ", count, " values for ",
                                                      forms.size(), " Wanted")});
        Shared result;
        for (size_t place = 0; place < count; ++place) {
            const TensorRef& value = value_at(place);
            const bool is_given =
                wanted_of(forms[place]).is_met_by(value->type()) && is_free_to_give(value);
            if (!is_given) result.left.push_back(place);
            result.values.append(is_given ? given(value) : nb::none());
        }
        return result;
    }

    PyTypeObject* type() const { return reinterpret_cast<PyTypeObject*>(type_.ptr()); }

    // A tensor over the memory of one of theirs; null where it cannot be shared as it lies.
    TensorRef over(nb::handle value, bool is_writable) const {
        CTensor found{};
        Type type;
        if (functions_->tensor_of(value.ptr(), &found)) {
            PyErr_Clear();
            return nullptr;
        }
        const Described memory{.data = static_cast<char*>(found.data) + found.offset,
                               .device = found.device,
                               .device_number = found.device_id,
                               .dtype = found.dtype,
                               .shape = {found.shape, static_cast<size_t>(found.rank)},
                               .strides = found.strides};
        const bool is_here =
            guest_ ? found.device == nb::device::cuda::value && found.device_id == number_
                   : found.device == nb::device::cpu::value;
        if (!is_here || !fault_of(memory, type).empty()) return nullptr;
        return tensor_over(memory, type, {.object = nb::borrow(value)}, is_writable, guest_);
    }

    bool is_free_to_give(const TensorRef& value) const {
        if (!guest_) return python::is_free_to_give(value);
        return value->has_data() && &value->device() == guest_ && value->unique() &&
               value->storage()->unique() && value->storage()->is_owned();
    }

    nb::object given(const TensorRef& value) const {
        runtime::Rematerializer::instance().keep(*value);
        const Type& type = value->type();
        auto* const given = new Given{value, {}, steps_of(type), {}};
        std::ranges::copy(type.shape, given->shape.begin());
        given->managed = {
            .major = 1,
            .minor = 0,
            .owner = given,
            .end = [](CManaged* managed) { delete static_cast<Given*>(managed->owner); },
            .flags = 0,
            .tensor = {value->data(), guest_ ? nb::device::cuda::value : nb::device::cpu::value,
                       number_, type.rank(), theirs_of(type.dtype), given->shape.data(),
                       given->steps.data(), 0}};
        PyObject* object = nullptr;
        if (functions_->object_of(&given->managed, &object)) throw nb::python_error();
        return nb::steal(object);
    }

    nb::type_object type_;
    const CFunctions* functions_ = nullptr;
    runtime::Device* guest_ = nullptr;
    int number_ = 0;
};

}  // namespace

void bind_library_tensors(nb::module_& m) {
    nb::class_<Wanted>(
        m, "Wanted",
        "How a result is to lie: dtype None: never as ours do; steps: strides in elements, None: in any order.")
        .def("__init__",
             [](Wanted* self, nb::object dtype, std::optional<std::vector<int64_t>> steps) {
        new (self) Wanted{dtype.is_none() ? std::nullopt : std::optional(dtype_from(dtype)),
                          std::move(steps)};
    }, nb::arg("dtype").none(), nb::arg("steps").none());
    nb::class_<Exchange>(
        m, "Exchange",
        "Shares the memory of all tensors of a call with another library, by the C functions of its class of tensors (`__dlpack_c_exchange_api__`). gpu: the number of the GPU whose tensors are shared; None: those of the host are. RuntimeError where there is no such GPU here.")
        .def(nb::init<nb::type_object, std::optional<int>>(), nb::arg("type"),
             nb::arg("gpu") = nb::none())
        .def_prop_ro("place", &Exchange::place,
                     "The name of the device where tensors of theirs lie; of the host \"\".")
        .def(
            "lent", &Exchange::lent, nb::arg("tensor"), nb::arg("writable") = false,
            nb::sig("def lent(self, tensor: Any, writable: bool = False) -> Tensor"),
            "A tensor over the memory of one of theirs. BufferError where it cannot be shared as it lies.")
        .def("absent", &Exchange::absent, nb::arg("form"),
             nb::sig("def absent(self, form: Tensor) -> Tensor"),
             "A tensor of the form's type where theirs lie, without memory: for plans alone.")
        .def("begin", [](const Exchange& self) { self.ours(nb::list()); },
             "On a GPU what is queued from here on runs where the library's own work does.")
        .def("end", &Exchange::end, "Work that the library queues from now on comes behind ours.")
        .def(
            "ours",
            [](const Exchange& self, const nb::list& values) {
        const auto found = self.ours(values);
        return nb::make_tuple(found.values, found.left);
    }, nb::arg("values"),
            nb::sig("def ours(self, values: list[Any]) -> tuple[list[Any], list[int]]"),
            "Tensors over the memory of theirs, and the places of theirs that cannot be shared as they lie, which stay as they are.")
        .def(
            "theirs",
            [](const Exchange& self, const nb::list& values, const nb::list& wanted) {
        const auto found = self.theirs(values, wanted);
        return nb::make_tuple(found.values, found.left);
    }, nb::arg("values"), nb::arg("wanted"),
            nb::sig(
                "def theirs(self, values: list[Any], wanted: list[Wanted]) -> tuple[list[Any], list[int]]"),
            "Theirs over the memory of values that nobody else has, and that are as wanted, and the places of others, which have None. The values are not to be used any more.")
        .def(
            "replayed", &Exchange::replayed, nb::arg("function"), nb::arg("wanted"),
            nb::arg("values"),
            nb::sig(
                "def replayed(self, function: TraceFunction, wanted: list[Wanted], values: list[Any]) -> list[Any] | None"),
            "A call with theirs alone whose results can all be given as wanted; empties `values`. None, and they stay, where one of both cannot be shared, or the function has no recording for them whose calls take and give tensors alone: the call is to be made in other ways.");
}

}  // namespace megjit::python
