// python/bindings/facts.h -- Facts: what a recorded body could read besides the values of its
// tensors, and whether a call finds the same. Python's guards say what belongs to it; here it is
// compared, object by object, without Python code. Other objects may still be equal numbers: that
// the guards judge (python/megengine/jit/guards.py).
#pragma once

#include <unordered_set>
#include <utility>
#include <vector>

#include "python/bindings/handle.h"

namespace megjit::python {

class Facts {
public:
    // Says what is read of a thing: the item of a dict under a key; all items of a dict, or of
    // another container; what a cell holds; the class and the dict of an instance; the gradient of
    // a tensor, and how many attributes a program has put on it; the code and the defaults of a
    // function; what a callable gives (the items, where that is a tuple).
    enum class Kind : uint8_t { entry, table, sequence, cell, instance, tensor, function, given };

    // Adds a thing, which is to hold what it holds now.
    void add(Kind kind, nb::object thing, nb::object key);
    // Each call sets the gradients of these tensors, and compares them by itself.
    void leave_grads(const nb::list& tensors);

    size_t count() const { return things_.size(); }
    bool hold_all() const { return differing(0) == count(); }
    // Returns the first thing, from this place on, that holds other objects; the number of things
    // where none does.
    size_t differing(size_t place) const;
    nb::list now(size_t place) const { return to_list(objects_of(things_.at(place))); }
    nb::list held(size_t place) const { return to_list(things_.at(place).held); }
    void hold(size_t place);  // from here on, the thing must hold what it holds now

    // Says which arguments the call had. `positional`: a tuple for each tensor (its class and
    // attributes) and each container (its class, its keys and such entries), all else as it is.
    // `grads`: by tensor among the arguments; None for those whose gradient nobody reads.
    // `fixed`: a tensor that must be the argument at this place. `captured`: tensors that no
    // argument may be.
    void set_call(nb::tuple positional, nb::dict keywords,
                  std::vector<std::pair<size_t, nb::object>> grads,
                  std::vector<std::pair<size_t, nb::object>> fixed, nb::list captured);
    // Returns whether these arguments are like those of the call, and puts their tensors, in order,
    // into `tensors`. False may mean that only the guards can tell.
    bool takes(PyObject* const* arguments, size_t count, PyObject* names, nb::list& tensors) const;

    int traverse(visitproc visit, void* arg) const;  // shows what this holds to the cycle collector

private:
    struct Thing {
        Kind kind = Kind::given;
        nb::object object = {}, key = {};
        std::vector<nb::object> held = {};
        bool leaves_grad = false;
    };
    template <class See>
    static bool show(const Thing& thing, See&& see);
    static std::vector<nb::object> objects_of(const Thing& thing);
    static nb::list to_list(const std::vector<nb::object>& objects);
    bool takes_one(PyObject* value, PyObject* then, nb::list& tensors) const;
    bool takes_tensor(PyObject* value, PyObject* then, nb::list& tensors) const;

    std::vector<Thing> things_;
    nb::object positional_;
    std::vector<std::pair<nb::object, nb::object>> keywords_;
    std::vector<std::pair<size_t, nb::object>> grads_, fixed_;
    nb::object captured_held_;
    std::unordered_set<PyObject*> captured_;  // the tensors in captured_held_
};

}  // namespace megjit::python
