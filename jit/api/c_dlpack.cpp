// Tensors from and to other libraries, as DLPack describes them (the unversioned form, which all
// know). The layout of its structs is an ABI; the caller includes dlpack.h.
#include "jit/api/c_error.h"
#include "jit/api/c_tensor.h"
#include "jit/api/process.h"

struct DLManagedTensor {
    void* data;
    int32_t device_type, device_id;
    int32_t rank;
    uint8_t code, bits;  // an element's
    uint16_t lanes;
    int64_t* shape;
    int64_t* strides;  // elements; null: row-major
    uint64_t byte_offset;
    void* owner;
    void (*deleter)(DLManagedTensor*);
};

using namespace megjit;
using namespace megjit::api;
using runtime::cat;

namespace {

constexpr int32_t kHost = 1, kHostForCuda = 3;  // kinds of devices

struct Element {
    megjit_dtype dtype;
    uint8_t code, bits;
};
constexpr Element kElements[] = {
    {MEGJIT_FLOAT32, 2, 32},   {MEGJIT_FLOAT16, 2, 16}, {MEGJIT_BFLOAT16, 4, 16},
    {MEGJIT_INT32, 0, 32},     {MEGJIT_INT16, 0, 16},   {MEGJIT_INT8, 0, 8},
    {MEGJIT_UINT8, 1, 8},      {MEGJIT_UINT16, 1, 16},  {MEGJIT_BOOL, 6, 8},
    {MEGJIT_COMPLEX64, 5, 64}, {MEGJIT_FLOAT64, 2, 64}, {MEGJIT_INT64, 0, 64}};

megjit_dtype dtype_of(const DLManagedTensor& given) {
    for (const Element& element : kElements)
        if (element.code == given.code && element.bits == given.bits && given.lanes == 1)
            return element.dtype;
    runtime::user_error({.what = cat("no dtype has DLPack's code ", int(given.code), " with ",
                                     int(given.bits), " bits and ", given.lanes, " lanes"),
                         .fix = "convert the tensor to a dtype of megjit.h"});
}

// What a tensor that was given away is made of.
struct Given {
    DLManagedTensor managed = {};
    megjit_tensor tensor = {};
    std::vector<int64_t> shape = {}, strides = {};
};

}  // namespace

extern "C" megjit_status megjit_tensor_from_dlpack(DLManagedTensor* managed,
                                                   megjit_tensor** tensor) {
    return guarded([&] {
        const DLManagedTensor& given = not_null(managed, "managed");
        megjit_tensor*& result = not_null(tensor, "tensor");
        ensure_started();
        if (given.device_type != kHost && given.device_type != kHostForCuda)
            runtime::user_error(
                {.what = cat("the tensor is on a device of DLPack's kind ", given.device_type),
                 .why = "inputs and outputs of a run are in the host's memory",
                 .fix = "copy it to the CPU"});
        std::unique_ptr<megjit_tensor> owned =
            borrowed(dtype_of(given), given.rank, given.shape, given.strides,
                     static_cast<std::byte*>(given.data) + given.byte_offset);
        owned->keep = std::shared_ptr<void>(managed, [](void* whole) {
            auto* const of_others = static_cast<DLManagedTensor*>(whole);
            if (of_others->deleter) of_others->deleter(of_others);
        });
        result = owned.release();
    });
}

extern "C" megjit_status megjit_tensor_to_dlpack(const megjit_tensor* tensor,
                                                 DLManagedTensor** managed) {
    return guarded([&] {
        auto made = std::make_unique<Given>(Given{.tensor = not_null(tensor, "tensor")});
        const Type& type = made->tensor.type;
        made->shape.assign(type.shape.begin(), type.shape.end());
        const auto plain = type.shape.row_major_strides();
        made->strides = made->tensor.strides;
        if (made->strides.empty()) made->strides.assign(plain.begin(), plain.begin() + type.rank());
        const Element& element = kElements[static_cast<size_t>(type.dtype)];
        made->managed = {
            .data = made->tensor.data,
            .device_type = kHost,
            .device_id = 0,
            .rank = type.rank(),
            .code = element.code,
            .bits = element.bits,
            .lanes = 1,
            .shape = made->shape.data(),
            .strides = made->strides.data(),
            .byte_offset = 0,
            .owner = made.get(),
            .deleter = [](DLManagedTensor* whole) { delete static_cast<Given*>(whole->owner); }};
        not_null(managed, "managed") = &made.release()->managed;
    });
}
