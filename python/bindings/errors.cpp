#include <new>

#include "python/bindings/handle.h"
#include "runtime/core/live_blocks.h"
#include "runtime/host/error.h"
#include "runtime/host/user_line.h"

namespace megjit::python {
namespace {

using runtime::ErrorKind;

PyObject* trace_error = nullptr;
PyObject* operand_error = nullptr;

PyObject* class_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::value: return PyExc_ValueError;
        case ErrorKind::operands: return operand_error;
        case ErrorKind::type: return PyExc_TypeError;
        case ErrorKind::index: return PyExc_IndexError;
        case ErrorKind::runtime: return PyExc_RuntimeError;
        case ErrorKind::trace: return trace_error;
        case ErrorKind::assertion: return PyExc_AssertionError;
        case ErrorKind::memory: return PyExc_MemoryError;
    }
    return PyExc_RuntimeError;
}

// Texts may come from other processes and libraries, in whatever bytes.
void set_python_error(PyObject* type, std::string_view text) {
    const nb::object decoded = nb::steal(PyUnicode_DecodeUTF8(
        text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
    if (decoded.is_valid()) PyErr_SetObject(type, decoded.ptr());
}

void set_error(const runtime::UserError& error) {
    runtime::Message message = error.message;
    if (message.at.empty()) message.at = user_location();
    set_python_error(class_of(error.kind), message.text());
}

void set_memory_error(const runtime::OutOfMemory& error) {
    set_python_error(PyExc_MemoryError, message_of(error).text());
}

}  // namespace

void bind_errors(nb::module_& m) {
    runtime::set_user_line([] { return PyGILState_Check() ? user_location() : std::string(); });
    trace_error = PyErr_NewExceptionWithDoc(
        "megengine.jit.TraceError", "A call of a traced function does not follow its record.",
        PyExc_RuntimeError, nullptr);
    m.attr("TraceError") = nb::handle(trace_error);
    const nb::object both = nb::steal(PyTuple_Pack(2, PyExc_ValueError, PyExc_RuntimeError));
    operand_error = PyErr_NewExceptionWithDoc(
        "megengine.core.OperandError",
        "The operands of an operation do not fit it: their shapes, an axis or a dtype. A ValueError "
        "as NumPy's, and a RuntimeError as MegEngine's.",
        both.ptr(), nullptr);
    m.attr("OperandError") = nb::handle(operand_error);
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const runtime::UserError& error) {
            set_error(error);
        } catch (const runtime::OutOfMemory& error) {
            set_memory_error(error);
        } catch (const runtime::Error& error) {
            set_python_error(PyExc_RuntimeError, error.what());
        }
    });
}

PyObject* guarded(PyObject* (*body)(void*), void* state) noexcept {
    try {
        return body(state);
    } catch (nb::python_error& error) { error.restore(); } catch (const runtime::UserError& error) {
        set_error(error);
    } catch (const runtime::OutOfMemory& error) {
        set_memory_error(error);
    } catch (const std::bad_alloc&) { PyErr_NoMemory(); } catch (const std::exception& error) {
        set_python_error(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

}  // namespace megjit::python
