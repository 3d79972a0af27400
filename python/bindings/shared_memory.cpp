#include "python/bindings/shared_memory.h"

#include <algorithm>
#include <atomic>

#include "runtime/core/tensor.h"

namespace megjit::python {

using runtime::Layout;
using runtime::Shape;

namespace {

std::atomic<Owner*> abandoned{nullptr};

void add_abandoned(Owner* owner) {
    owner->next = abandoned.load();
    while (!abandoned.compare_exchange_weak(owner->next, owner)) {}
}

}  // namespace

int release_abandoned(void*) {
    for (Owner* owner = abandoned.exchange(nullptr); owner;) {
        Owner* const next = owner->next;
        if (!owner->stream || owner->stream->is_past(owner->last)) delete owner;
        else add_abandoned(owner);
        owner = next;
    }
    return 0;
}

namespace {

thread_local bool releases_here = false;

void abandon(void* memory) {
    auto* const owner = static_cast<Owner*>(memory);
    if (owner->stream) owner->last = owner->stream->record();
    if (releases_here && (!owner->stream || owner->stream->is_past(owner->last))) {
        delete owner;
        return;
    }
    add_abandoned(owner);
    Py_AddPendingCall(release_abandoned,
                      nullptr);  // where too many wait, the next one releases all
}

}  // namespace

void release_here(Tensors borrowed) {
    releases_here = true;
    borrowed.clear();
    releases_here = false;
}

void refuse(const std::string& why) {
    PyErr_SetString(PyExc_BufferError, runtime::cat("from_dlpack: this memory cannot be shared: ",
                                                    why, "\n  fix: leave copy=False out")
                                           .c_str());
    throw nb::python_error();
}

namespace {

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

}  // namespace

nb::dlpack::dtype theirs_of(DType dtype) {
    return std::ranges::find(kDTypes, dtype, &Row::ours)->theirs;
}

std::array<int64_t, runtime::kMaxRank> steps_of(const Type& type) {
    std::array<int64_t, runtime::kMaxRank> steps = type.shape.row_major_strides();
    if (type.layout != Layout::channels_last) return steps;
    int64_t step = type.shape[1];
    for (int axis = type.rank(); axis-- > 2; step *= type.shape[axis]) steps[axis] = step;
    steps[1] = 1;
    steps[0] = step;
    return steps;
}

namespace {

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

}  // namespace

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

TensorRef tensor_over(const Described& memory, const Type& type, Owner&& owner, bool writable,
                      runtime::Device* guest) {
    runtime::Device& device =
        guest ? *guest
        : memory.device == nb::device::cuda::value
            ? runtime::find_device(runtime::cat("gpu", memory.device_number, ":0"))
            : default_host();
    owner.stream = guest ? nullptr : &device.stream();
    if (!type.numel()) return runtime::empty_tensor(device, type);
    auto keep = std::shared_ptr<void>(new Owner(std::move(owner)), abandon);
    return runtime::make_tensor(type, runtime::Storage::borrow(device, memory.data, type.bytes(),
                                                               std::move(keep), writable));
}

TensorRef readable(const TensorRef& value) {
    if (value->type().layout != Layout::channels_last || !value->device().is_host() ||
        runtime::context().tracer)
        return host_row_major(value);
    runtime::require_data(*value);
    return value;
}

bool is_free_to_give(const TensorRef& value) {
    return value->has_data() && value->device().is_host() && value->unique() &&
           value->storage()->unique() && value->storage()->is_owned() &&
           readable(value)->id() == value->id();
}

}  // namespace megjit::python
