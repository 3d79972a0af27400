// python/bindings/ -- the thin border between Python and C++. Everything here converts; nothing
// computes.
//
// python/bindings/handle.h -- Handle: what a Python Tensor object holds, and how Python values
// become tensors.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/eager/dispatch.h"
#include "runtime/host/host_lock.h"

#ifdef Py_LIMITED_API
extern "C" int PyGILState_Check();  // public, and in every CPython from 3.4 on, but not declared
                                    // for the stable ABI
#endif

namespace megjit::python {

namespace nb = nanobind;
using runtime::DType;
using runtime::TensorRef;
using runtime::Tensors;
using runtime::Type;

// A rebindable name for an immutable value: in-place writes of the API rebind it.
class Handle {
public:
    Handle() = default;
    explicit Handle(TensorRef value) : value_(std::move(value)) {}
    // Waits while a program runs that rebinds the handle (loan.h). TypeError where no __init__ ran.
    const TensorRef& value() const {
        if (!value_) [[unlikely]]
            wait_for_value();
        return value_;
    }
    bool is_empty() const { return !value_; }
    void set(TensorRef value) { value_ = std::move(value); }

private:
    friend class Loan;
    void wait_for_value() const;
    TensorRef value_;
};

// Python's set_default_device sets where new tensors go, and where ops without operands compute.
runtime::Device& default_device();
void set_default_device(const std::string& name);
// The default device if that is the host, else the host's first one: where borrowed memory lies.
runtime::Device& default_host();
// While it lives, the default device is another one for this thread.
class OnDevice {
public:
    explicit OnDevice(runtime::Device& device);
    ~OnDevice();
    OnDevice(const OnDevice&) = delete;

private:
    runtime::Device* saved_;
};
// Finds a device by any of its names; "" is the default device.
runtime::Device& device_named(const std::string& name);

// The Python class that results are made of (megengine.Tensor); set once by tensor.py.
void set_tensor_class(nb::handle type);
PyTypeObject* tensor_class();
bool is_tensor(PyObject* object);
Handle& handle_of(PyObject* object);  // unchecked
// The value of a Tensor, as Handle::value; TypeError for anything else. The reference is good until
// other Python code may run.
const TensorRef& value_of(PyObject* object);
Tensors values_of(nb::handle list);  // takes a sequence of Tensors
// Gives the value that an operation is about to read: a record for dump, or for calls without
// the body, asks the objects again, and takes for a constant what none of them has held.
const TensorRef& operand_of(PyObject* object);
Tensors operands_of(nb::handle list);
// Returns the same bytes under an identity of their own, so that attaching one tensor does not
// attach the other. Tapes and traces see an op: gradients flow through the copy. A constant's copy
// is an ordinary tensor at `place`.
TensorRef copy_of(const TensorRef& value, runtime::Device& place);
// Where the value lies, as programs see it: a constant that the host holds lies nowhere until it is
// used, and stands for one on the default device.
runtime::Device& place_of(const runtime::Tensor& value);
// Writes in place: the object holds another value from here. A running traced call takes note.
void rebind(PyObject* tensor, TensorRef value);
nb::object wrap(TensorRef value);  // a new megengine.Tensor
PyObject* wrap_new(TensorRef value);  // the same, as slots of types return it
PyObject* wrap_as(PyTypeObject* type, TensorRef value);  // an instance of a subclass
void slot_dealloc(PyObject* tensor);  // nobody holds `tensor` any more
// `of_link(graph, value)` gives the object for a result that belongs to an edited graph.
void set_variables(nb::object of_link);
nb::object wrap_all(std::span<const TensorRef> values);  // one Tensor, or a tuple
PyObject* wrap_results(runtime::Results results);  // the same

// Makes a Python value a tensor of the default dtype for it (int -> int32, float -> float32, bool;
// float64 -> float32, int64 -> int32). `constant`: a trace bakes it in.
TensorRef tensor_from(nb::handle value, bool constant, runtime::Device& device,
                      std::optional<DType> wanted = {});
// Holds what np.asarray takes as NumPy's row-major array of a dtype of ours; `wanted`: the dtype
// that it will be cast to.
struct OurArray {
    Type type;
    nb::object array;
};
OurArray our_array(nb::handle value, std::optional<DType> wanted);
// Makes a tensor of an array's elements.
TensorRef tensor_from_numpy(nb::handle array, bool constant, runtime::Device& device,
                            std::optional<DType> wanted = {});
// OverflowError for a number that an integer dtype cannot hold. -1 is all bits of an unsigned one.
void check_number(nb::handle number, DType dtype);
// Makes a tensor with a copy of these bytes of the host, or (null) without values.
TensorRef new_tensor(const Type& type, const void* data, runtime::Device& device);
// The value of a Tensor that the host is about to read; a recording for dump remembers the Tensor.
const TensorRef& value_to_read(PyObject* tensor);
// The value with its elements in row-major order, on the host; a running trace is told of the read.
TensorRef host_row_major(TensorRef tensor);
nb::object to_numpy(TensorRef value);  // copies
TensorRef cast_now(const TensorRef& value, DType dtype);  // eager, unseen by traces

// The operands of one op, one an argument: tensors as they are, Python scalars in the dtype that
// promotion gives.
void operands_from(PyObject* const* args, const runtime::OpDef& op, std::span<TensorRef> result);
// The result of an op of these Tensors if it is the one that the running trace plainly expects,
// else null. Operands are read where the Tensors hold them, as nothing else runs meanwhile.
PyObject* followed(const runtime::OpDef& op, const runtime::Attrs& attrs, PyObject* const* args,
                   size_t count);
// Is it a power of a float tensor by the number 2? square has the same bits in a 20th of the time.
bool is_square(const runtime::OpDef& op, PyObject* const* args, size_t count);

nb::object op_function(const runtime::OpDef& op);  // op(*tensors, **attributes), a C function
nb::object python_value(const runtime::Attr& attr);  // a number, a str or a tuple of ints
DType dtype_from(nb::handle dtype);  // np.dtype, type, name
nb::object numpy_dtype(DType dtype);

// "train.py:41 in forward": the innermost frame outside of this package.
std::string user_location();

void bind_errors(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_exchange(nb::module_& m);
void bind_library_tensors(nb::module_& m);
void bind_streams(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_library_ops(nb::module_& m);
void bind_autodiff(nb::module_& m);
void bind_facts(nb::module_& m);
void bind_trace(nb::module_& m);
void bind_trace_notes(nb::module_& m);
void bind_trace_options(nb::module_& m);
void bind_control_flow(nb::module_& m);
void bind_model(nb::module_& m);
void bind_network(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_system(nb::module_& m);
void bind_host_lock(nb::module_& m);
void bind_call_log(nb::module_& m);
void bind_communicator(nb::module_& m);

// Runs `body` and sets the Python error that fits what it throws; for slots, which nanobind does
// not guard.
PyObject* guarded(PyObject* (*body)(void*), void* state) noexcept;
template <class Body>
PyObject* guard(Body&& body) noexcept {
    return guarded(
        [](void* state) { return (*static_cast<std::remove_reference_t<Body>*>(state))(); }, &body);
}

}  // namespace megjit::python
