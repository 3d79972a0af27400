// python/bindings/shared_memory.h -- values over memory that another library owns, and who keeps
// it.
#pragma once

#include <nanobind/ndarray.h>

#include <array>
#include <span>
#include <string>

#include "python/bindings/handle.h"
#include "runtime/core/device.h"

namespace megjit::python {

using Theirs = nb::ndarray<nb::ro>;

// Keeps the owner of borrowed memory. A storage may go in any thread, under any lock, but the
// owner's destructor is Python's: it runs in the main thread, when that is back in Python and what
// was queued on the memory has run. What a guest (Device::guest) borrows goes sooner: its library
// queues whatever reuses the memory behind the guest's work.
struct Owner {
    Theirs array = {};
    nb::object object = {};
    runtime::Stream* stream = nullptr;  // null: a guest's
    runtime::Ticket last = 0;
    Owner* next = nullptr;
};
// Owners whose work still runs wait for the next time. Needs Python's lock.
int release_abandoned(void* = nullptr);
// Lets go of tensors over borrowed memory. Their owners go at once, but for those whose work still
// runs: the caller has Python's lock, and holds the owners itself, so that no destructor runs.
void release_here(Tensors borrowed);

[[noreturn]] void refuse(const std::string& why);  // BufferError of from_dlpack

nb::dlpack::dtype theirs_of(DType dtype);
// The strides by axis, in elements, of a layout that is not packed.
std::array<int64_t, runtime::kMaxRank> steps_of(const Type& type);

// Memory of others, as its owners describe it; strides count elements.
struct Described {
    void* data = nullptr;
    int32_t device = 0, device_number = 0;
    nb::dlpack::dtype dtype = {};
    std::span<const int64_t> shape = {};
    const int64_t* strides = nullptr;
};
// Finds the type of a tensor over it. Returns why there cannot be one; "" if there can.
std::string fault_of(const Described& memory, Type& type);
// `guest`: whose memory it is; null: the host's, or a GPU's.
TensorRef tensor_over(const Described& memory, const Type& type, Owner&& owner, bool writable,
                      runtime::Device* guest = nullptr);

// Returns a channels-last value of the host unchanged, and anything else in row-major order.
TensorRef readable(const TensorRef& value);
// May the host's memory of the value become another library's, since nobody else has it?
bool is_free_to_give(const TensorRef& value);

}  // namespace megjit::python
