// Memory that is shared with other libraries, by DLPack or the buffer protocol: values over memory
// of theirs, and memory of values for them to read.
#include <nanobind/ndarray.h>

#include <atomic>

#include "python/bindings/handle.h"
#include "runtime/core/rematerializer.h"
#include "runtime/core/tensor.h"

namespace megjit::python {
namespace {

using runtime::Layout;
using Theirs = nb::ndarray<nb::ro>;

// ---- theirs as ours

// Keeps the owner of borrowed memory. A storage may go in any thread, under any lock, but the
// owner's destructor is Python's: it runs in the main thread, when that is back in Python.
struct Owner {
    Theirs array;
    Owner* next = nullptr;
};
std::atomic<Owner*> abandoned{nullptr};

int release_abandoned(void*) {
    for (Owner* owner = abandoned.exchange(nullptr); owner;) {
        Owner* const next = owner->next;
        delete owner;
        owner = next;
    }
    return 0;
}

void abandon(void* memory) {
    auto* const owner = static_cast<Owner*>(memory);
    owner->next = abandoned.load();
    while (!abandoned.compare_exchange_weak(owner->next, owner)) {}
    Py_AddPendingCall(release_abandoned,
                      nullptr);  // where too many wait, the next one releases all
}

[[noreturn]] void refuse(const std::string& why) {
    PyErr_SetString(PyExc_BufferError, runtime::cat("from_dlpack: this memory cannot be shared: ",
                                                    why, "\n  fix: leave copy=False out")
                                           .c_str());
    throw nb::python_error();
}

struct Row {
    DType ours;
    nb::dlpack::dtype theirs;
};
constexpr nb::dlpack::dtype as_dlpack(nb::dlpack::dtype_code code, int bits) {
    return {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
}
using Code = nb::dlpack::dtype_code;
constexpr Row kDTypes[] = {
    {DType::f32, as_dlpack(Code::Float, 32)},   {DType::f16, as_dlpack(Code::Float, 16)},
    {DType::bf16, as_dlpack(Code::Bfloat, 16)}, {DType::i32, as_dlpack(Code::Int, 32)},
    {DType::i16, as_dlpack(Code::Int, 16)},     {DType::i8, as_dlpack(Code::Int, 8)},
    {DType::u8, as_dlpack(Code::UInt, 8)},      {DType::u16, as_dlpack(Code::UInt, 16)},
    {DType::b8, as_dlpack(Code::Bool, 8)},      {DType::c64, as_dlpack(Code::Complex, 64)}};
static_assert(std::size(kDTypes) == runtime::kDTypeCount);

DType dtype_of(const nb::dlpack::dtype& theirs) {
    for (const Row& row : kDTypes)
        if (row.theirs == theirs) return row.ours;
    refuse(runtime::cat("tensors have no elements of ", theirs.bits, " bits of that kind"));
}

// From an element to the next along each axis, in elements; of a layout that is not packed.
std::array<int64_t, runtime::kMaxRank> steps_of(const Type& type) {
    std::array<int64_t, runtime::kMaxRank> steps = type.shape.row_major_strides();
    if (type.layout != Layout::channels_last) return steps;
    int64_t step = type.shape[1];
    for (int axis = type.rank(); axis-- > 2; step *= type.shape[axis]) steps[axis] = step;
    steps[1] = 1;
    steps[0] = step;
    return steps;
}

bool lies_as(const Theirs& array, const Type& type) {
    const auto steps = steps_of(type);
    for (int axis = 0; axis < type.rank(); ++axis)
        if (type.shape[axis] != 1 && array.stride(static_cast<size_t>(axis)) != steps[axis])
            return false;
    return true;
}

std::optional<Layout> layout_of(const Theirs& array, Type type) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
        type.layout = layout;
        const bool has_spatial_axes = type.rank() >= 3 && type.rank() <= 5;
        if ((has_spatial_axes || layout == Layout::row_major) && lies_as(array, type))
            return layout;
    }
    return {};
}

nb::object borrow(nb::handle object, bool writable) {
    release_abandoned(nullptr);
    Theirs array;
    if (!nb::try_cast(object, array)) {
        PyErr_Clear();
        refuse("it is neither an array nor a DLPack capsule");
    }
    if (array.device_type() != nb::device::cpu::value) refuse("it is not the host's");
    Type type{dtype_of(array.dtype()), {}};
    if (array.ndim() > static_cast<size_t>(runtime::kMaxRank))
        refuse(
            runtime::cat("it has ", array.ndim(), " axes, a tensor at most ", runtime::kMaxRank));
    for (size_t axis = 0; axis < array.ndim(); ++axis)
        type.shape.push_back(static_cast<int64_t>(array.shape(axis)));
    runtime::Device& device =
        default_device().is_host() ? default_device() : runtime::host_device();
    if (!type.numel()) return wrap(runtime::empty_tensor(device, type));
    const std::optional<Layout> layout = layout_of(array, type);
    if (!layout) refuse("its elements are neither in row-major order nor channels-last");
    type.layout = *layout;
    void* const data = const_cast<void*>(array.data());
    if (reinterpret_cast<uintptr_t>(data) % runtime::size_of(type.dtype))
        refuse("its elements do not lie at multiples of their size");
    auto keep = std::shared_ptr<void>(new Owner{std::move(array)}, abandon);
    return wrap(runtime::make_tensor(
        type, runtime::Storage::borrow(device, data, type.bytes(), std::move(keep), writable)));
}

// ---- ours as theirs

// An object with __dlpack__ over the value's memory, which it keeps.
template <class... Access>
nb::object exported(const TensorRef& value) {
    runtime::Rematerializer::instance().keep(*value);
    const Type& type = value->type();
    std::vector<size_t> shape(type.shape.begin(), type.shape.end());
    nb::dlpack::dtype dtype{};
    for (const Row& row : kDTypes)
        if (row.ours == type.dtype) dtype = row.theirs;
    const auto steps = steps_of(type);
    const nb::capsule owner(new TensorRef(value),
                            [](void* held) noexcept { delete static_cast<TensorRef*>(held); });
    using Ours = nb::ndarray<nb::array_api, Access...>;
    return nb::cast(Ours(value->data(), shape.size(), shape.data(), owner, steps.data(), dtype,
                         nb::device::cpu::value));
}

// A channels-last value as it lies, if that is the host's memory; anything else in row-major order.
TensorRef readable(const TensorRef& value) {
    if (value->type().layout != Layout::channels_last || !value->device().is_host() ||
        runtime::context().tracer)
        return host_row_major(value);
    runtime::require_data(*value);
    return value;
}

nb::object lend(const Handle& self) {
    const TensorRef given = self.value(), value = readable(given);
    if (value->storage() != given->storage()) {
        PyErr_SetString(
            PyExc_BufferError,
            "Tensor.__dlpack__: the value does not lie on the host in row-major order, or channels-last\n"
            "  fix: leave copy=False out");
        throw nb::python_error();
    }
    return exported<nb::ro>(value);
}

// Of a value that nobody else has: whoever takes it may write to it.
nb::object give_away(const Handle& self) {
    const TensorRef& value = self.value();
    if (!value->has_data() || !value->unique() || !value->storage()->unique() ||
        !value->storage()->is_owned() || readable(value)->id() != value->id())
        return nb::none();
    return exported<>(value);
}

}  // namespace

void bind_exchange(nb::module_& m) {
    // A tensor over memory that somebody else owns: an object with __dlpack__ or the buffer
    // protocol, or a DLPack capsule. `writable`: traced calls that rebind the tensor write its new
    // values there. BufferError where it cannot be shared.
    m.def("borrow", &borrow, nb::arg("array").none(), nb::arg("writable") = false);
    // An object with __dlpack__ for the tensor's own memory, which it keeps; read-only.
    m.def("lend", &lend, nb::arg("tensor"));
    // The same, to be written to as well, of a value that nobody else has; else None. The tensor
    // is not to be used any more.
    m.def("give_away", &give_away, nb::arg("tensor"));
    m.def("address", [](const Handle& tensor) {
        return reinterpret_cast<uintptr_t>(tensor.value()->data());
    }, nb::arg("tensor"), "Where the elements lie on its device.");
}

}  // namespace megjit::python
