// Memory that is shared with other libraries, by DLPack or the buffer protocol: values over memory
// of theirs, and memory of values for them to read.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/capture.h"
#include "python/bindings/guest.h"
#include "python/bindings/shared_memory.h"
#include "runtime/core/host_view.h"
#include "runtime/core/rematerializer.h"
#include "runtime/core/tensor.h"

namespace megjit::python {
namespace {

using runtime::Shape;

// ---- theirs as ours

nb::object borrow(nb::handle object, bool writable) {
    release_abandoned(nullptr);
    Theirs array;
    if (!nb::try_cast(object, array)) {
        PyErr_Clear();
        refuse("it is neither an array nor a DLPack capsule");
    }
    const Described memory{.data = const_cast<void*>(array.data()),
                           .device = array.device_type(),
                           .device_number = array.device_id(),
                           .dtype = array.dtype(),
                           .shape = {array.shape_ptr(), array.ndim()},
                           .strides = array.stride_ptr()};
    Type type;
    if (const std::string why = fault_of(memory, type); !why.empty()) refuse(why);
    return wrap(tensor_over(memory, type, {.array = array}, writable));
}

int gpu_of(const void* address) {
    runtime::discover_devices();
    for (const runtime::Device* device : runtime::all_devices())
        if (device->holds(address)) return device->info().number;
    refuse("no GPU of this process holds its address");
}

// As `__cuda_array_interface__` describes it; `owner` keeps it.
nb::object borrow_array(const nb::dict& array, nb::handle owner) try {
    release_abandoned(nullptr);
    const auto [address, is_read_only] = nb::cast<std::pair<uintptr_t, bool>>(array["data"]);
    const auto shape = nb::cast<std::vector<int64_t>>(array["shape"]);
    const DType dtype = [&] {
        try {
            return dtype_from(nb::module_::import_("numpy").attr("dtype")(array["typestr"]));
        } catch (const runtime::UserError&) {
            refuse(runtime::cat("tensors have no elements of type ",
                                nb::cast<std::string>(array["typestr"])));
        }
    }();
    const auto size = static_cast<int64_t>(runtime::size_of(dtype));
    Type type{dtype, Shape(shape)};
    const auto own = type.shape.row_major_strides();
    std::vector<int64_t> steps(own.begin(), own.begin() + type.rank());
    if (array.contains("strides") && !nb::handle(array["strides"]).is_none()) {
        steps = nb::cast<std::vector<int64_t>>(array["strides"]);
        if (steps.size() != shape.size()) refuse("it has as many strides as axes, or none");
        for (int64_t& step : steps) step /= size;
    }
    Described memory{.data = reinterpret_cast<void*>(address),
                     .device = nb::device::cuda::value,
                     .dtype = theirs_of(dtype),
                     .shape = shape,
                     .strides = steps.data()};
    if (type.numel()) memory.device_number = gpu_of(memory.data);
    if (const std::string why = fault_of(memory, type); !why.empty()) refuse(why);
    return wrap(tensor_over(memory, type, {.object = nb::borrow(owner)}, false));
} catch (const nb::cast_error&) {
    refuse("its __cuda_array_interface__ has an entry of another type");
}

bool is_on_gpu(nb::handle capsule) {
    // A capsule is opened once: where its tensor lies is looked up beside that.
    for (const char* name : {"dltensor_versioned", "dltensor"}) {
        if (!PyCapsule_IsValid(capsule.ptr(), name)) continue;
        const void* const managed = PyCapsule_GetPointer(capsule.ptr(), name);
        const CTensor& tensor = std::string_view(name) == "dltensor"
                                    ? *static_cast<const CTensor*>(managed)
                                    : static_cast<const CManaged*>(managed)->tensor;
        return tensor.device == nb::device::cuda::value;
    }
    return false;
}

// ---- ours as theirs

// An object with __dlpack__ over the value's memory, which it keeps.
template <class... Access>
nb::object exported(const TensorRef& value) {
    runtime::Rematerializer::instance().keep(*value);
    value->keep_copy(nullptr);  // some takers write to what is lent for reading
    const Type& type = value->type();
    const bool is_host = value->device().is_host();
    std::vector<size_t> shape(type.shape.begin(), type.shape.end());
    const nb::dlpack::dtype dtype = theirs_of(type.dtype);
    const auto steps = steps_of(type);
    const nb::capsule owner(new TensorRef(value),
                            [](void* held) noexcept { delete static_cast<TensorRef*>(held); });
    using Ours = nb::ndarray<nb::array_api, Access...>;
    return nb::cast(Ours(value->data(), shape.size(), shape.data(), owner, steps.data(), dtype,
                         is_host ? nb::device::cpu::value : nb::device::cuda::value,
                         is_host ? 0 : value->device().info().number));
}

nb::object lend(nb::handle_t<Handle> self) {
    const TensorRef given = value_to_read(self.ptr()), value = readable(given);
    if (value->storage() != given->storage()) {
        PyErr_SetString(
            PyExc_BufferError,
            "Tensor.__dlpack__: the value does not lie on the host in row-major order, or channels-last\n"
            "  fix: leave copy=False out");
        throw nb::python_error();
    }
    return exported<nb::ro>(value);
}

// Lends the value on its GPU, or a copy there that the taker may write to.
nb::object lend_in_place(nb::handle_t<Handle> self, bool copies) {
    TensorRef value = value_to_read(self.ptr());
    if (Capture* capture = Capture::current()) capture->note_read(value);
    if (runtime::Tracer* tracer = runtime::context().tracer) tracer->on_read(*value);
    runtime::require_data(*value);
    value = runtime::row_major(value);
    if (!copies) return exported<nb::ro>(value);
    runtime::Device& device = value->device();
    const runtime::Pins pins({&value, 1});
    const TensorRef copy = runtime::empty_tensor(device, value->type());
    device.stream().copy(copy->data(), value->data(), value->type().bytes());
    return exported<>(copy);
}

nb::object host_bytes(nb::handle_t<Handle> self) {
    struct Held {
        TensorRef value;
        runtime::HostView view;
    };
    const TensorRef value = host_row_major(value_to_read(self.ptr()));
    auto* held = new Held{value, runtime::HostView(value)};
    const nb::capsule owner(held, [](void* held) noexcept { delete static_cast<Held*>(held); });
    using Bytes = nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>;
    return nb::cast(Bytes(held->view.data(), {value->type().bytes()}, owner));
}

// Gives away a value that nobody else has: its new owner may write to it.
nb::object give_away(const Handle& self) {
    return is_free_to_give(self.value()) ? exported<>(self.value()) : nb::none();
}

}  // namespace

void bind_exchange(nb::module_& m) {
    // A tensor over memory that somebody else owns: an object with __dlpack__ or the buffer
    // protocol, or a DLPack capsule. `writable`: traced calls that rebind the tensor write its new
    // values there. BufferError where it cannot be shared.
    m.def("borrow", &borrow, nb::arg("array").none(), nb::arg("writable") = false);
    m.def("borrow_array", &borrow_array, nb::arg("array"), nb::arg("owner"),
          nb::sig("def borrow_array(array: dict[str, Any], owner: Any) -> Tensor"),
          "A tensor over memory of a GPU, as __cuda_array_interface__ describes it.");
    m.def("is_on_gpu", &is_on_gpu, nb::arg("capsule").none(),
          "Does a DLPack capsule hold a GPU's memory?");
    // An object with __dlpack__ for the tensor's own memory, which it keeps; read-only.
    m.def("lend", &lend, nb::arg("tensor"));
    m.def("host_bytes", &host_bytes, nb::arg("tensor"),
          nb::sig("def host_bytes(tensor: Tensor) -> numpy.ndarray"),
          "The value's bytes in row-major order, read-only: its own memory, or a copy from a GPU.");
    // Lends a tensor on a GPU where it lies; or, `copies`, a copy to be written to.
    m.def("lend_in_place", &lend_in_place, nb::arg("tensor"), nb::arg("copies"));
    // Lends a value that nobody else has, to be written to as well; else gives None. The tensor is
    // not to be used any more.
    m.def("give_away", &give_away, nb::arg("tensor"));
    m.def("address", [](const Handle& tensor) {
        return reinterpret_cast<uintptr_t>(tensor.value()->data());
    }, nb::arg("tensor"), "Where the elements lie on its device.");
}

}  // namespace megjit::python
