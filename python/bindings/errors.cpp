#include <algorithm>
#include <functional>
#include <new>

#include "jit/plan/over_limit.h"
#include "python/bindings/handle.h"
#include "runtime/core/live_blocks.h"
#include "runtime/host/error.h"
#include "runtime/host/user_line.h"

namespace megjit::python {
namespace {

using runtime::ErrorKind;

PyObject* trace_error = nullptr;
PyObject* operand_error = nullptr;
PyObject* out_of_memory_error = nullptr;

// Programs that look for a batch that fits (accelerate, Lightning) tell out of memory from other
// errors by these words of torch.
constexpr std::string_view kInTorchsWords =
    "kind: out of memory. In torch's words: \"DefaultCPUAllocator: can't allocate memory\"";
constexpr std::ptrdiff_t kMostLines = 6;  // limit of an error's text

PyObject* class_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::value: return PyExc_ValueError;
        case ErrorKind::operands: return operand_error;
        case ErrorKind::type: return PyExc_TypeError;
        case ErrorKind::index: return PyExc_IndexError;
        case ErrorKind::runtime: return PyExc_RuntimeError;
        case ErrorKind::trace: return trace_error;
        case ErrorKind::assertion: return PyExc_AssertionError;
        case ErrorKind::memory: return out_of_memory_error;
        case ErrorKind::os: return PyExc_OSError;
    }
    return PyExc_RuntimeError;
}

// Texts may come from other processes and libraries, in whatever bytes.
nb::object decoded(std::string_view text) {
    return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                          "backslashreplace"));
}

void set_python_error(PyObject* type, std::string_view text) {
    const nb::object value = decoded(text);
    if (value.is_valid()) PyErr_SetObject(type, value.ptr());
}

nb::object out_of_memory(const std::string& text) {
    const bool is_full = std::count(text.begin(), text.end(), '\n') + 1 >= kMostLines;
    const nb::object words = decoded(runtime::cat(text, is_full ? "; " : "\n  ", kInTorchsWords));
    if (!words.is_valid()) nb::raise_python_error();
    return nb::handle(out_of_memory_error)(words);
}

nb::object over_limit(const jit::LimitFigures& figures, const std::string& proof,
                      const std::string& text) {
    nb::object error = out_of_memory(text);
    error.attr("limit") = figures.limit;
    error.attr("needed") = figures.needed;
    error.attr("bound") = figures.bound;
    error.attr("proof") = decoded(proof);
    return error;
}

// Making the exception may itself fail, which is then the error.
void raise(const std::function<nb::object()>& make) noexcept {
    try {
        const nb::object error = make();
        PyErr_SetObject(out_of_memory_error, error.ptr());
    } catch (nb::python_error& error) { error.restore(); } catch (const std::exception&) {
        PyErr_NoMemory();
    }
}

std::string text_of(const runtime::UserError& error) {
    runtime::Message message = error.message;
    if (message.at.empty()) message.at = user_location();
    return message.text();
}

void set_error(const runtime::UserError& error) {
    if (const auto* refused = dynamic_cast<const jit::OverLimit*>(&error))
        return raise([&] { return over_limit(refused->figures, refused->proof, text_of(error)); });
    if (error.kind == ErrorKind::memory)
        return raise([&] { return out_of_memory(text_of(error)); });
    set_python_error(class_of(error.kind), text_of(error));
}

void set_memory_error(const runtime::OutOfMemory& error) {
    raise([&] { return out_of_memory(message_of(error).text()); });
}

void bind_out_of_memory(nb::module_& m) {
    const nb::object both = nb::steal(PyTuple_Pack(2, PyExc_MemoryError, PyExc_RuntimeError));
    nb::dict attributes;
    for (const char* name : {"limit", "needed", "bound", "proof"}) attributes[name] = nb::none();
    out_of_memory_error = PyErr_NewExceptionWithDoc(
        "megengine.core.OutOfMemoryError",
        "Memory that there is not, or a memory limit that no plan keeps. A MemoryError, and a "
        "RuntimeError as torch's is. Of a limit it has figures in bytes: limit, needed (by the "
        "smallest plan that was found) and bound (no plan takes less), and proof (a text: what is "
        "alive at once in any plan).",
        both.ptr(), attributes.ptr());
    m.attr("OutOfMemoryError") = nb::handle(out_of_memory_error);
    m.def("over_limit",
          [](size_t limit, size_t needed, size_t bound, const std::string& proof,
             const std::string& rest) {
        const jit::LimitFigures figures{.limit = limit, .needed = needed, .bound = bound};
        return over_limit(figures, proof, told(figures) + rest);
    },
          nb::arg("limit"), nb::arg("needed"), nb::arg("bound"), nb::arg("proof"), nb::arg("rest"),
          "The error of a limit that is refused; `rest` follows the line that says so.");
    m.def("out_of_memory", [](const std::string& text) {
        return out_of_memory(text);
    }, nb::arg("text"), "The error with this text, and a line for who looks for smaller batches.");
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
    bind_out_of_memory(m);
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
