// Memory that is shared with other libraries, by DLPack or the buffer protocol: values over memory
// of theirs, and memory of values for them to read.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>

#include "python/bindings/handle.h"
#include "runtime/core/rematerializer.h"
#include "runtime/core/tensor.h"

namespace megjit::python {
namespace {

using runtime::Layout;
using runtime::Shape;
using Theirs = nb::ndarray<nb::ro>;

// ---- as DLPack's version 1 has them

struct CTensor {
    void* data;
    int32_t device, device_id, rank;
    nb::dlpack::dtype dtype;
    int64_t *shape, *strides;
    uint64_t offset;
};
struct CManaged {
    uint32_t major, minor;
    void* owner;
    void (*end)(CManaged*);
    uint64_t flags;
    CTensor tensor;
};

// ---- theirs as ours

// Keeps the owner of borrowed memory. A storage may go in any thread, under any lock, but the
// owner's destructor is Python's: it runs in the main thread, when that is back in Python and what
// was queued on the memory has run.
struct Owner {
    Theirs array = {};
    nb::object object = {};
    runtime::Stream* stream = nullptr;
    runtime::Ticket last = 0;
    Owner* next = nullptr;
};
std::atomic<Owner*> abandoned{nullptr};

void add_abandoned(Owner* owner) {
    owner->next = abandoned.load();
    while (!abandoned.compare_exchange_weak(owner->next, owner)) {}
}

// Owners whose work still runs wait for the next time.
int release_abandoned(void*) {
    for (Owner* owner = abandoned.exchange(nullptr); owner;) {
        Owner* const next = owner->next;
        if (owner->stream->is_past(owner->last)) delete owner;
        else add_abandoned(owner);
        owner = next;
    }
    return 0;
}

void abandon(void* memory) {
    auto* const owner = static_cast<Owner*>(memory);
    owner->last = owner->stream->record();
    add_abandoned(owner);
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
    {DType::b8, as_dlpack(Code::Bool, 8)},      {DType::c64, as_dlpack(Code::Complex, 64)},
    {DType::f64, as_dlpack(Code::Float, 64)},   {DType::i64, as_dlpack(Code::Int, 64)}};
static_assert(std::size(kDTypes) == runtime::kDTypeCount);

nb::dlpack::dtype theirs_of(DType dtype) {
    return std::ranges::find(kDTypes, dtype, &Row::ours)->theirs;
}

// The strides by axis, in elements, of a layout that is not packed.
std::array<int64_t, runtime::kMaxRank> steps_of(const Type& type) {
    std::array<int64_t, runtime::kMaxRank> steps = type.shape.row_major_strides();
    if (type.layout != Layout::channels_last) return steps;
    int64_t step = type.shape[1];
    for (int axis = type.rank(); axis-- > 2; step *= type.shape[axis]) steps[axis] = step;
    steps[1] = 1;
    steps[0] = step;
    return steps;
}

// Memory of others, as its owners describe it; strides count elements.
struct Described {
    void* data = nullptr;
    int32_t device = 0, device_number = 0;
    nb::dlpack::dtype dtype = {};
    std::span<const int64_t> shape = {};
    const int64_t* strides = nullptr;
};

bool lies_as(const Described& memory, const Type& type) {
    if (!memory.strides) return type.layout == Layout::row_major;  // as DLPack has it
    const auto steps = steps_of(type);
    for (int axis = 0; axis < type.rank(); ++axis)
        if (type.shape[axis] != 1 && memory.strides[axis] != steps[axis]) return false;
    return true;
}

std::optional<Layout> layout_of(const Described& memory, Type type) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
        type.layout = layout;
        const bool has_spatial_axes = type.rank() >= 3 && type.rank() <= 5;
        if ((has_spatial_axes || layout == Layout::row_major) && lies_as(memory, type))
            return layout;
    }
    return {};
}

// Finds the type of a tensor over it. Returns why there cannot be one; "" if there can.
std::string fault_of(const Described& memory, Type& type) {
    if (memory.device != nb::device::cpu::value && memory.device != nb::device::cuda::value)
        return "it is neither the host's nor a GPU's";
    const auto* const row =
        std::ranges::find_if(kDTypes, [&](const Row& each) { return each.theirs == memory.dtype; });
    if (row == std::end(kDTypes))
        return runtime::cat("tensors have no elements of ", memory.dtype.bits,
                            " bits of that kind");
    if (memory.shape.size() > static_cast<size_t>(runtime::kMaxRank))
        return runtime::cat("it has ", memory.shape.size(), " axes, a tensor at most ",
                            runtime::kMaxRank);
    type = {row->ours, Shape(memory.shape)};
    if (!type.numel()) return {};
    const std::optional<Layout> layout = layout_of(memory, type);
    if (!layout) return "its elements are neither in row-major order nor channels-last";
    type.layout = *layout;
    return reinterpret_cast<uintptr_t>(memory.data) % runtime::size_of(type.dtype)
               ? "its elements do not lie at multiples of their size"
               : "";
}

nb::object tensor_over(const Described& memory, const Type& type, Owner&& owner, bool writable) {
    runtime::Device& device =
        memory.device == nb::device::cuda::value
            ? runtime::find_device(runtime::cat("gpu", memory.device_number, ":0"))
            : (default_device().is_host() ? default_device() : runtime::host_device());
    owner.stream = &device.stream();
    if (!type.numel()) return wrap(runtime::empty_tensor(device, type));
    auto keep = std::shared_ptr<void>(new Owner(std::move(owner)), abandon);
    return wrap(runtime::make_tensor(
        type,
        runtime::Storage::borrow(device, memory.data, type.bytes(), std::move(keep), writable)));
}

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
    return tensor_over(memory, type, {.array = array}, writable);
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
    return tensor_over(memory, type, {.object = nb::borrow(owner)}, false);
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

// Returns a channels-last value of the host unchanged, and anything else in row-major order.
TensorRef readable(const TensorRef& value) {
    if (value->type().layout != Layout::channels_last || !value->device().is_host() ||
        runtime::context().tracer)
        return host_row_major(value);
    runtime::require_data(*value);
    return value;
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

bool is_free_to_give(const TensorRef& value) {
    return value->has_data() && value->device().is_host() && value->unique() &&
           value->storage()->unique() && value->storage()->is_owned() &&
           readable(value)->id() == value->id();
}

// Gives away a value that nobody else has: its new owner may write to it.
nb::object give_away(const Handle& self) {
    return is_free_to_give(self.value()) ? exported<>(self.value()) : nb::none();
}

// ---- all tensors of a call, by the C functions that a library has for its class of them

struct CFunctions {
    uint32_t major, minor;
    CFunctions* older;
    void (*make)();
    int (*managed_of)(PyObject*, CManaged**);
    int (*object_of)(CManaged*, PyObject**);
    int (*tensor_of)(PyObject*, CTensor*);  // the tensor is good as long as the object
    void (*stream)();
};

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

class Exchange {
public:
    explicit Exchange(nb::type_object type) : type_(std::move(type)) {
        const nb::object capsule = nb::getattr(type_, "__dlpack_c_exchange_api__");
        functions_ = static_cast<const CFunctions*>(
            PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
        if (!functions_) throw nb::python_error();
        while (functions_ && functions_->major != 1) functions_ = functions_->older;
        if (!functions_ || !functions_->tensor_of || !functions_->object_of)
            refuse("its class has other functions for it");
    }

    // All tensors of a call, ours in the place of theirs. What cannot be shared in place, or is no
    // tensor, stays unchanged.
    struct Shared {
        nb::list values = {};
        std::vector<size_t> left = {};  // places of tensors that could not be shared
    };
    Shared ours(const nb::list& values) const {
        release_abandoned(nullptr);
        Shared result;
        for (const nb::object& value : objects_of(values)) {
            const bool is_theirs = PyObject_TypeCheck(value.ptr(), type());
            nb::object tensor = is_theirs ? over(value) : value;
            if (tensor.is(value) && is_theirs) result.left.push_back(nb::len(result.values));
            result.values.append(std::move(tensor));
        }
        return result;
    }

    // Makes a call whose operands and results can all be shared as wanted, and empties `values`.
    // Returns None, and leaves them, where one cannot be shared or nothing was recorded for them:
    // the caller makes the call in other ways.
    nb::object replayed(const nb::callable& replay, const nb::list& wanted, nb::list values) const {
        const Shared given = ours(values);
        if (!given.left.empty()) return nb::none();
        const nb::object found = replay(given.values);
        if (found.is_none()) return found;
        if (!nb::isinstance<nb::list>(found))
            wrong_type("a replay gives a list or None, not a ", found);
        Shared results = theirs(nb::borrow<nb::list>(found), wanted);
        if (!results.left.empty()) return nb::none();
        values.clear();
        return std::move(results.values);
    }

    // Makes theirs over the memory of values that nobody else has, and that are as wanted.
    Shared theirs(const nb::list& values, const nb::list& wanted) const {
        const auto given_values = objects_of(values), forms = objects_of(wanted);
        if (given_values.size() != forms.size())
            runtime::user_error({.what = runtime::cat("Exchange: ", given_values.size(),
                                                      " values for ", forms.size(), " Wanted")});
        Shared result;
        for (size_t place = 0; place < forms.size(); ++place) {
            const TensorRef& value = value_of(given_values[place].ptr());
            const bool is_given =
                wanted_of(forms[place]).is_met_by(value->type()) && is_free_to_give(value);
            if (!is_given) result.left.push_back(place);
            result.values.append(is_given ? given(value) : nb::none());
        }
        return result;
    }

private:
    struct Given {
        TensorRef value;
        std::array<int64_t, runtime::kMaxRank> shape, steps;
        CManaged managed;
    };

    PyTypeObject* type() const { return reinterpret_cast<PyTypeObject*>(type_.ptr()); }

    nb::object over(nb::handle value) const {
        CTensor found{};
        Type type;
        if (functions_->tensor_of(value.ptr(), &found)) {
            PyErr_Clear();
            return nb::borrow(value);
        }
        const Described memory{.data = static_cast<char*>(found.data) + found.offset,
                               .device = found.device,
                               .dtype = found.dtype,
                               .shape = {found.shape, static_cast<size_t>(found.rank)},
                               .strides = found.strides};
        if (found.device != nb::device::cpu::value || !fault_of(memory, type).empty())
            return nb::borrow(value);
        return tensor_over(memory, type, {.object = nb::borrow(value)}, false);
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
            .tensor = {value->data(), nb::device::cpu::value, 0, type.rank(), theirs_of(type.dtype),
                       given->shape.data(), given->steps.data(), 0}};
        PyObject* object = nullptr;
        if (functions_->object_of(&given->managed, &object)) throw nb::python_error();
        return nb::steal(object);
    }

    nb::type_object type_;
    const CFunctions* functions_ = nullptr;
};

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
    // Lends a tensor on a GPU where it lies; or, `copies`, a copy to be written to.
    m.def("lend_in_place", &lend_in_place, nb::arg("tensor"), nb::arg("copies"));
    // Lends a value that nobody else has, to be written to as well; else gives None. The tensor is
    // not to be used any more.
    m.def("give_away", &give_away, nb::arg("tensor"));
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
        "Shares the memory of all tensors of a call with another library, by the C functions of its class of tensors (`__dlpack_c_exchange_api__`).")
        .def(nb::init<nb::type_object>(), nb::arg("type"))
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
            "replayed", &Exchange::replayed, nb::arg("replay"), nb::arg("wanted"),
            nb::arg("values"),
            nb::sig(
                "def replayed(self, replay: Callable[[list[Any]], list[Any] | None], wanted: list[Wanted], values: list[Any]) -> list[Any] | None"),
            "A call with theirs alone whose results can all be given as wanted; empties `values`. None, and they stay, where one of both cannot be shared, or the replay gives None: the call is to be made in other ways.");
    m.def("address", [](const Handle& tensor) {
        return reinterpret_cast<uintptr_t>(tensor.value()->data());
    }, nb::arg("tensor"), "Where the elements lie on its device.");
}

}  // namespace megjit::python
