#include "jit/api/c_tensor.h"

#include "jit/api/c_error.h"
#include "jit/api/process.h"
#include "runtime/core/host_view.h"
#include "runtime/eager/dispatch.h"

namespace megjit::api {

using runtime::cat;
using runtime::DType;
using runtime::Ref;
using runtime::Shape;
using runtime::Storage;

namespace {

// The numbers of megjit_dtype are those of DType, plus one.
static_assert(int(DType::f32) + 1 == MEGJIT_FLOAT32 && int(DType::f16) + 1 == MEGJIT_FLOAT16 &&
              int(DType::bf16) + 1 == MEGJIT_BFLOAT16 && int(DType::i32) + 1 == MEGJIT_INT32 &&
              int(DType::i16) + 1 == MEGJIT_INT16 && int(DType::i8) + 1 == MEGJIT_INT8 &&
              int(DType::u8) + 1 == MEGJIT_UINT8 && int(DType::u16) + 1 == MEGJIT_UINT16 &&
              int(DType::b8) + 1 == MEGJIT_BOOL && int(DType::c64) + 1 == MEGJIT_COMPLEX64 &&
              int(DType::f64) + 1 == MEGJIT_FLOAT64 && int(DType::i64) + 1 == MEGJIT_INT64);

Type type_from(megjit_dtype dtype, int32_t rank, const int64_t* shape) {
    if (dtype < MEGJIT_FLOAT32 || dtype > MEGJIT_INT64)
        runtime::user_error(
            {.what = cat("there is no dtype ", int(dtype)), .fix = "use a value of megjit_dtype"});
    if (rank < 0 || rank > MEGJIT_MAX_RANK)
        runtime::user_error(
            {.what = cat("a tensor has ", rank, " axes"), .fix = "use 0 to 8 of them"});
    if (rank > 0) not_null(shape, "shape");
    const Type type{static_cast<DType>(dtype - 1),
                    Shape(std::span(shape, static_cast<size_t>(rank)))};
    (void)type.bytes();  // UserError where that overflows
    return type;
}

bool is_row_major(const Shape& shape, const int64_t* strides) {
    const auto plain = shape.row_major_strides();
    for (int axis = 0; axis < shape.rank(); ++axis)
        if (shape[axis] > 1 && strides[axis] != plain[static_cast<size_t>(axis)]) return false;
    return true;
}

// Copies between memory with strides, in elements of `item` bytes, and memory without gaps.
class StridedCopy {
public:
    StridedCopy(const megjit_tensor& tensor, std::byte* packed, bool to_packed)
        : shape_(tensor.type.shape),
          strides_(tensor.strides),
          item_(static_cast<int64_t>(size_of(tensor.type.dtype))),
          packed_(packed),
          to_packed_(to_packed) {
        if (tensor.type.numel() > 0) axis(0, tensor.data);
    }

private:
    void axis(int number, std::byte* strided) {
        if (number == shape_.rank()) {
            std::memcpy(to_packed_ ? packed_ : strided, to_packed_ ? strided : packed_,
                        static_cast<size_t>(item_));
            packed_ += item_;
            return;
        }
        for (int64_t i = 0; i < shape_[number]; ++i)
            axis(number + 1, strided + i * strides_[static_cast<size_t>(number)] * item_);
    }
    const Shape& shape_;
    const std::vector<int64_t>& strides_;
    const int64_t item_;
    std::byte* packed_;
    const bool to_packed_;
};

void set_type(megjit_tensor& tensor, const Type& type) {
    if (tensor.type == type) return;
    if (tensor.value) tensor.value = runtime::make_tensor(type, tensor.value->storage());
    tensor.type = type;
}

}  // namespace

std::unique_ptr<megjit_tensor> made_of(const Type& type) {
    TensorRef value = runtime::empty_tensor(runtime::host_device(), type);
    return std::make_unique<megjit_tensor>(megjit_tensor{
        .type = type, .room = type, .data = value->as<std::byte>(), .value = std::move(value)});
}

megjit_tensor_info info_of(const char* name, const Type& type) {
    return {.name = name,
            .shape = type.shape.begin(),
            .rank = type.rank(),
            .dtype = static_cast<megjit_dtype>(int(type.dtype) + 1),
            .bytes = type.bytes()};
}

TensorRef input_of(const megjit_tensor& tensor) {
    if (tensor.value) return tensor.value;
    Ref<Storage> packed = Storage::make(runtime::host_device(), tensor.type.bytes());
    StridedCopy(tensor, static_cast<std::byte*>(packed->data()), true);
    return runtime::make_tensor(tensor.type, std::move(packed));
}

void check_output(megjit_tensor& tensor, const Port& port) {
    set_type(tensor, tensor.room);
    if (tensor.type.dtype != port.type.dtype || !(tensor.type.shape == port.type.shape))
        runtime::user_error(
            {.what = cat("the tensor for output ", port.name, " is ", to_string(tensor.type)),
             .why = cat("the model gives ", port.count < 0 ? "" : "at most ", to_string(port.type)),
             .fix = "give a tensor like that, or NULL for a new one"});
    for (size_t axis = 0; axis < tensor.strides.size(); ++axis)
        if (tensor.strides[axis] == 0 && tensor.type.shape[static_cast<int>(axis)] > 1)
            runtime::user_error(
                {.what = cat("the tensor for output ", port.name, " has stride 0 in axis ", axis),
                 .why = "its elements would be one in memory",
                 .fix = "give a tensor with an element for each number"});
}

void copy_to(megjit_tensor& tensor, const TensorRef& value) {
    const TensorRef plain = runtime::row_major(value);
    const runtime::HostView view(plain);
    set_type(tensor, plain->type());
    if (tensor.value && plain->storage() == tensor.value->storage()) return;  // was computed there
    if (tensor.strides.empty()) {
        if (const size_t bytes = tensor.type.bytes()) std::memcpy(tensor.data, view.data(), bytes);
        return;
    }
    // Read only: to_packed is false.
    StridedCopy(tensor, static_cast<std::byte*>(const_cast<void*>(view.data())), false);
}

std::unique_ptr<megjit_tensor> borrowed(megjit_dtype dtype, int32_t rank, const int64_t* shape,
                                        const int64_t* strides, void* data) {
    auto made =
        std::make_unique<megjit_tensor>(megjit_tensor{.type = type_from(dtype, rank, shape)});
    const Type& type = made->room = made->type;
    if (type.numel() > 0) not_null(static_cast<std::byte*>(data), "data");
    const size_t align = type.dtype == DType::c64 ? 4 : size_of(type.dtype);
    if (reinterpret_cast<uintptr_t>(data) % align)
        runtime::user_error(
            {.what = cat("the data of a ", to_string(type), " are not aligned to an element"),
             .fix = cat("give an address that is a multiple of ", align)});
    if (strides && !is_row_major(type.shape, strides))
        made->strides.assign(strides, strides + rank);
    made->data = static_cast<std::byte*>(data);
    if (made->strides.empty())
        made->value = runtime::make_tensor(
            type, Storage::borrow(runtime::host_device(), data, type.bytes(), nullptr));
    return made;
}

std::unique_ptr<megjit_tensor> tensor_of(TensorRef value, const Type* room) {
    Type type = value->type();
    type.layout = runtime::Layout::row_major;
    // A result may be an input's memory, a constant of the model, or stand twice among the outputs.
    const bool is_free = value->type() == type && value->device().is_host() && value->unique() &&
                         value->storage()->unique();
    if (!is_free) {
        auto made = made_of(room ? *room : type);
        copy_to(*made, value);
        return made;
    }
    const runtime::HostView wait(value);
    return std::make_unique<megjit_tensor>(megjit_tensor{.type = type,
                                                         .room = room ? *room : type,
                                                         .data = value->as<std::byte>(),
                                                         .value = std::move(value)});
}

}  // namespace megjit::api

using namespace megjit::api;
using megjit::runtime::cat;

extern "C" megjit_status megjit_tensor_create(megjit_dtype dtype, int32_t rank,
                                              const int64_t* shape, megjit_tensor** tensor) {
    return guarded([&] {
        ensure_started();
        not_null(tensor, "tensor") = made_of(type_from(dtype, rank, shape)).release();
    });
}

extern "C" megjit_status megjit_tensor_borrow(megjit_dtype dtype, int32_t rank,
                                              const int64_t* shape, const int64_t* strides,
                                              void* data, megjit_tensor** tensor) {
    return guarded([&] {
        ensure_started();
        not_null(tensor, "tensor") = borrowed(dtype, rank, shape, strides, data).release();
    });
}

extern "C" void megjit_tensor_free(megjit_tensor* tensor) { delete tensor; }

extern "C" megjit_status megjit_tensor_describe(const megjit_tensor* tensor,
                                                megjit_tensor_info* info) {
    return guarded([&] { not_null(info, "info") = info_of("", not_null(tensor, "tensor").type); });
}

extern "C" megjit_status megjit_tensor_data(const megjit_tensor* tensor, void** data) {
    return guarded([&] { not_null(data, "data") = not_null(tensor, "tensor").data; });
}
