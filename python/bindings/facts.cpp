#include "python/bindings/facts.h"

#include <algorithm>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/capture.h"
#include "runtime/host/error.h"

namespace megjit::python {
namespace {

// Is the attribute of a tensor a fact? Gradients are compared apart, and what other
// libraries see of a value (_lent) does not change the body.
bool is_fact(PyObject* name) {
    return PyUnicode_CompareWithASCIIString(name, "grad") != 0 &&
           PyUnicode_CompareWithASCIIString(name, "_lent") != 0;
}

nb::object dict_of(PyObject* object) {
    PyObject* const own = PyObject_GenericGetDict(object, nullptr);
    if (!own) PyErr_Clear();  // its class has no dict
    return nb::steal(own);
}

nb::object grad_of(PyObject* tensor) {
    static PyObject* const name = PyUnicode_InternFromString("grad");
    const nb::object own = dict_of(tensor);
    PyObject* const grad = own ? PyDict_GetItemWithError(own.ptr(), name) : nullptr;
    return grad ? nb::borrow(grad) : nb::none();
}

nb::object steal_or_throw(PyObject* object) {
    if (!object) throw nb::python_error();
    return nb::steal(object);
}

template <class See>
bool see_items(PyObject* sequence, See&& see) {  // a list or a tuple
    const bool is_list = PyList_Check(sequence);
    const Py_ssize_t count = is_list ? PyList_Size(sequence) : PyTuple_Size(sequence);
    for (Py_ssize_t i = 0; i < count; ++i)
        if (!see(is_list ? PyList_GetItem(sequence, i) : PyTuple_GetItem(sequence, i)))
            return false;
    return true;
}

template <class See>
bool see_table(PyObject* table, See&& see) {
    if (!PyDict_CheckExact(table)) {  // an ordered one has an order of its own
        if (PyDict_Size(table) == 0) return true;
        const nb::object keys = steal_or_throw(PySequence_List(table));
        const nb::object values = steal_or_throw(PyMapping_Values(table));
        return see_items(keys.ptr(), see) && see_items(values.ptr(), see);
    }
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(table, &at, &key, &value);)
        if (!see(key) || !see(value)) return false;
    return true;
}

template <class See>
bool see_entry(PyObject* table, PyObject* key, See&& see) {
    if (PyDict_CheckExact(table)) {
        PyObject* const item = PyDict_GetItemWithError(table, key);
        if (!item && PyErr_Occurred()) throw nb::python_error();
        return !item || see(item);
    }
    static PyObject* const missing =
        PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
    const nb::object item = nb::handle(table).attr("get")(nb::handle(key), nb::handle(missing));
    return item.is(missing) || see(item.ptr());
}

template <class See>
bool see_cell(PyObject* cell, See&& see) {
#ifdef Py_LIMITED_API
    PyObject* const content = PyObject_GetAttrString(cell, "cell_contents");
    if (!content) PyErr_Clear();  // it is not bound yet
#else
    PyObject* const content = PyCell_Get(cell);
#endif
    const nb::object held = nb::steal(content);
    return !held || see(held.ptr());
}

template <class See>
bool see_function(PyObject* function, See&& see) {
#ifdef Py_LIMITED_API
    for (const char* name : {"__code__", "__defaults__", "__kwdefaults__"})
        if (!see(nb::getattr(function, name).ptr())) return false;
    return true;
#else
    for (PyObject* part : {PyFunction_GetCode(function), PyFunction_GetDefaults(function),
                           PyFunction_GetKwDefaults(function)})
        if (!see(part ? part : Py_None)) return false;
    return true;
#endif
}

template <class See>
bool see_tensor(PyObject* tensor, bool leaves_grad, See&& see) {
    if (!leaves_grad && !see(grad_of(tensor).ptr())) return false;
    const nb::object own = dict_of(tensor);
    PyObject *key = nullptr, *value = nullptr;
    long count = 0;
    for (Py_ssize_t at = 0; own && PyDict_Next(own.ptr(), &at, &key, &value);)
        count += is_fact(key);
    return see(steal_or_throw(PyLong_FromLong(count)).ptr());
}

}  // namespace

// Calls `see` with each object that the thing holds, in order, until it returns false.
template <class See>
bool Facts::show(const Thing& thing, See&& see) {
    PyObject* const object = thing.object.ptr();
    switch (thing.kind) {
        case Kind::entry: return see_entry(object, thing.key.ptr(), see);
        case Kind::table: return see_table(object, see);
        case Kind::cell: return see_cell(object, see);
        case Kind::function: return see_function(object, see);
        case Kind::tensor: return see_tensor(object, thing.leaves_grad, see);
        case Kind::sequence:
            return see_items(
                PyList_CheckExact(object) ? object : steal_or_throw(PySequence_List(object)).ptr(),
                see);
        case Kind::instance: {
            const nb::object own = dict_of(object);
            return see(reinterpret_cast<PyObject*>(Py_TYPE(object))) && (!own || see(own.ptr()));
        }
        case Kind::given: {
            const nb::object given = steal_or_throw(PyObject_CallNoArgs(object));
            return PyTuple_CheckExact(given.ptr()) ? see_items(given.ptr(), see) : see(given.ptr());
        }
    }
    return false;
}

std::vector<nb::object> Facts::objects_of(const Thing& thing) {
    std::vector<nb::object> objects;
    show(thing, [&](PyObject* object) {
        objects.push_back(nb::borrow(object));
        return true;
    });
    return objects;
}

nb::list Facts::to_list(const std::vector<nb::object>& objects) {
    nb::list list;
    for (const nb::object& object : objects) list.append(object);
    return list;
}

void Facts::add(Kind kind, nb::object thing, nb::object key) {
    things_.push_back({kind, std::move(thing), std::move(key)});
    hold(things_.size() - 1);
}

void Facts::hold(size_t place) {
    const std::vector<nb::object> before = std::exchange(things_.at(place).held, {});
    things_[place].held = objects_of(things_[place]);
}

void Facts::leave_grads(const nb::list& tensors) {
    std::unordered_set<PyObject*> left;
    for (nb::handle tensor : tensors) left.insert(tensor.ptr());
    for (size_t place = 0; place < things_.size(); ++place)
        if (things_[place].kind == Kind::tensor && left.contains(things_[place].object.ptr())) {
            things_[place].leaves_grad = true;
            hold(place);
        }
}

size_t Facts::differing(size_t place) const {
    for (; place < things_.size(); ++place) {
        const std::vector<nb::object>& held = things_[place].held;
        size_t seen = 0;
        try {
            const bool is_same = show(things_[place], [&](PyObject* object) {
                return seen < held.size() && held[seen++].ptr() == object;
            });
            if (!is_same || seen != held.size()) return place;
        } catch (const nb::python_error&) {
            return place;  // what it asks raises: the guards say so
        }
    }
    return place;
}

// ---- arguments

void Facts::set_call(nb::tuple positional, nb::dict keywords,
                     std::vector<std::pair<size_t, nb::object>> grads,
                     std::vector<std::pair<size_t, nb::object>> fixed, nb::list captured) {
    positional_ = std::move(positional);
    keywords_.clear();
    for (auto [name, value] : keywords) keywords_.emplace_back(nb::borrow(name), nb::borrow(value));
    grads_ = std::move(grads);
    fixed_ = std::move(fixed);
    captured_.clear();
    for (nb::handle tensor : captured) captured_.insert(tensor.ptr());
    captured_held_ = std::move(captured);
}

bool Facts::takes(PyObject* const* arguments, size_t count, PyObject* names,
                  nb::list& tensors) const {
    if (!positional_ || nb::len(positional_) != count ||
        (names ? static_cast<size_t>(PyTuple_Size(names)) : 0) != keywords_.size())
        return false;
    for (size_t i = 0; i < count; ++i)
        if (!takes_one(arguments[i], PyTuple_GetItem(positional_.ptr(), static_cast<Py_ssize_t>(i)),
                       tensors))
            return false;
    for (size_t i = 0; i < keywords_.size(); ++i) {
        const auto& [name, value] = keywords_[i];
        PyObject* const given = PyTuple_GetItem(names, static_cast<Py_ssize_t>(i));
        if (arguments[count + i] != value.ptr() ||
            (given != name.ptr() && PyUnicode_Compare(given, name.ptr()) != 0))
            return false;
    }
    const auto at = [&](size_t place) {
        return PyList_GetItem(tensors.ptr(), static_cast<Py_ssize_t>(place));
    };
    for (size_t i = 0; !captured_.empty() && i < nb::len(tensors); ++i)
        if (captured_.contains(at(i))) return false;
    return std::ranges::all_of(fixed_, [&](const auto& each) {
        return at(each.first) == each.second.ptr();
    }) && std::ranges::all_of(grads_, [&](const auto& each) {
        return grad_of(at(each.first)).is(each.second);
    });
}

bool Facts::takes_one(PyObject* value, PyObject* then, nb::list& tensors) const {
    if (!PyTuple_Check(then)) return value == then;
    if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != PyTuple_GetItem(then, 0)) return false;
    if (is_tensor(value)) return takes_tensor(value, then, tensors);
    PyObject *const names = PyTuple_GetItem(then, 1), *const parts = PyTuple_GetItem(then, 2);
    const bool is_dict = PyDict_CheckExact(value);
    if (!is_dict && !PyList_CheckExact(value) && !PyTuple_CheckExact(value)) return false;
    Py_ssize_t place = 0;
    const Py_ssize_t count = PyTuple_Size(parts);
    const auto takes_next = [&](PyObject* part) {
        return place < count && takes_one(part, PyTuple_GetItem(parts, place++), tensors);
    };
    if (!is_dict) return see_items(value, takes_next) && place == count;
    PyObject *key = nullptr, *part = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &part);)
        if (place >= count || PyTuple_GetItem(names, place) != key || !takes_next(part))
            return false;
    return place == count;
}

bool Facts::takes_tensor(PyObject* value, PyObject* then, nb::list& tensors) const {
    const nb::object own = dict_of(value);
    PyObject *key = nullptr, *held = nullptr;
    Py_ssize_t facts = 1;
    const Py_ssize_t count = PyTuple_Size(then);
    for (Py_ssize_t at = 0; own && PyDict_Next(own.ptr(), &at, &key, &held);) {
        if (!is_fact(key)) continue;
        if (facts + 2 > count || PyTuple_GetItem(then, facts) != key ||
            PyTuple_GetItem(then, facts + 1) != held)
            return false;
        facts += 2;
    }
    tensors.append(nb::handle(value));
    return facts == count;
}

int Facts::traverse(visitproc visit, void* arg) const {
    for (const Thing& thing : things_) {
        Py_VISIT(thing.object.ptr());
        Py_VISIT(thing.key.ptr());
        for (const nb::object& object : thing.held) Py_VISIT(object.ptr());
    }
    Py_VISIT(positional_.ptr());
    Py_VISIT(captured_held_.ptr());
    for (const auto& [name, value] : keywords_) Py_VISIT(value.ptr());
    for (const auto& [place, grad] : grads_) Py_VISIT(grad.ptr());
    for (const auto& [place, tensor] : fixed_) Py_VISIT(tensor.ptr());
    return 0;
}

// ---- Python

namespace {

constexpr const char* kFactKinds[] = {"entry",    "table",  "sequence", "cell",
                                      "instance", "tensor", "function", "given"};

Facts::Kind fact_kind(const std::string& name) {
    const auto found = std::ranges::find(kFactKinds, name);
    if (found == std::end(kFactKinds))
        runtime::user_error({.what = runtime::cat("Facts: there is no kind ", name)});
    return static_cast<Facts::Kind>(found - kFactKinds);
}

int traverse_facts(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    return nb::inst_ready(nb::handle(self))
               ? nb::inst_ptr<Facts>(nb::handle(self))->traverse(visit, arg)
               : 0;
}
int clear_facts(PyObject* self) {
    if (nb::inst_ready(nb::handle(self)))
        const Facts dropped = std::exchange(*nb::inst_ptr<Facts>(nb::handle(self)), {});
    return 0;
}
PyType_Slot kFactsSlots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse_facts)},
    {Py_tp_clear, reinterpret_cast<void*>(clear_facts)},
    {0, nullptr},
};

}  // namespace

void bind_facts(nb::module_& m) {
    nb::class_<Facts>(m, "Facts", nb::type_slots(kFactsSlots),
                      "What a recorded body could read besides the values of its tensors.")
        .def(nb::init<>())
        .def("add",
             [](Facts& self, const std::string& kind, nb::object thing, nb::object key) {
        self.add(fact_kind(kind), std::move(thing), std::move(key));
    }, nb::arg("kind"), nb::arg("thing"), nb::arg("key").none() = nb::none(),
             "A thing of this kind is to hold what it holds now.")
        .def("leave_grads", &Facts::leave_grads, nb::arg("tensors"),
             nb::sig("def leave_grads(self, tensors: Sequence[Tensor]) -> None"),
             "Each call sets the gradients of these tensors, and compares them by itself.")
        .def(
            "differing", &Facts::differing, nb::arg("place"),
            "The first thing, from this place on, that holds other objects; their count where none does.")
        .def("now", &Facts::now, nb::arg("place"),
             nb::sig("def now(self, place: int) -> list[Any]"))
        .def("held", &Facts::held, nb::arg("place"),
             nb::sig("def held(self, place: int) -> list[Any]"))
        .def("hold", &Facts::hold, nb::arg("place"),
             "What the thing at this place holds now is the same from here on.")
        .def_prop_ro("count", &Facts::count, "How many things there are.")
        .def("set_call", &Facts::set_call, nb::arg("positional"), nb::arg("keywords"),
             nb::arg("grads"), nb::arg("fixed"), nb::arg("captured"),
             nb::sig("def set_call(self, positional: tuple[object, ...], keywords: dict[str, Any], "
                     "grads: Sequence[tuple[int, object]], fixed: Sequence[tuple[int, object]], "
                     "captured: Sequence[Tensor]) -> None"),
             "Says which arguments the recorded call had.");
}

}  // namespace megjit::python
