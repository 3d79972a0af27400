// jit/api/c_tensor.h -- megjit_tensor: numbers in the host's memory, borrowed or its own.
#pragma once

#include <memory>
#include <vector>

#include "jit/api/megjit/megjit.h"
#include "jit/api/model.h"

struct megjit_tensor {
    megjit::runtime::Type type;
    megjit::runtime::Type room = {};  // the type it was made for; a bounded output may fill less
    std::vector<int64_t> strides = {};  // elements; empty: row-major
    std::byte* data = nullptr;
    megjit::runtime::TensorRef value = {};  // the same memory; null where there are strides
    std::shared_ptr<void> keep = {};  // owner of memory that came by DLPack
};

namespace megjit::api {

megjit_tensor_info info_of(const char* name, const Type& type);

// Makes a tensor in memory of its own, not cleared, with all its room.
std::unique_ptr<megjit_tensor> made_of(const Type& type);
// Does what megjit_tensor_borrow() does. UserError for what that refuses.
std::unique_ptr<megjit_tensor> borrowed(megjit_dtype dtype, int32_t rank, const int64_t* shape,
                                        const int64_t* strides, void* data);

// A run reads the tensor's own memory, or a row-major copy of a tensor with strides.
TensorRef input_of(const megjit_tensor& tensor);
// Can it take an output? Then it has all its room again. UserError for another dtype or shape.
void check_output(megjit_tensor& tensor, const Port& port);
// Waits for the value, and writes it into a tensor with room for it, which gets its shape.
void copy_to(megjit_tensor& tensor, const TensorRef& value);
// Makes a tensor with the value, and room for it or more; nobody else has its memory.
std::unique_ptr<megjit_tensor> tensor_of(TensorRef value, const Type* room = nullptr);

}  // namespace megjit::api
