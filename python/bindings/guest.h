// python/bindings/guest.h -- memory and streams of another library that computes on GPUs in this
// process, by the C functions that its class of tensors has (DLPack's exchange API), and the device
// that uses them: its work is queued on the library's current stream, so that neither waits for the
// other, and all its memory is the library's.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>

#include "runtime/core/device.h"

namespace megjit::python {

// These structures are those of DLPack's version 1.
struct CTensor {
    void* data = nullptr;
    int32_t device = 0, device_id = 0, rank = 0;
    nanobind::dlpack::dtype dtype = {};
    int64_t *shape = nullptr, *strides = nullptr;
    uint64_t offset = 0;
};
struct CManaged {
    uint32_t major = 1, minor = 0;
    void* owner = nullptr;
    void (*end)(CManaged*) = nullptr;
    uint64_t flags = 0;
    CTensor tensor = {};
};
struct CFunctions {
    uint32_t major, minor;
    CFunctions* older;
    // An empty tensor of the prototype's form; `tell` is called with what went wrong.
    int (*make)(CTensor* prototype, CManaged** made, void* context,
                void (*tell)(void* context, const char* kind, const char* text));
    int (*managed_of)(PyObject*, CManaged**);
    int (*object_of)(CManaged*, PyObject**);
    int (*tensor_of)(PyObject*, CTensor*);  // the tensor is good as long as the object
    int (*stream)(int32_t device, int32_t number, void** stream);  // that of this thread
};

// The device for a library's tensors on a GPU: "gpu0:torch". It is made when it is first asked for.
// UserError where this process has no such GPU, with the library that is missing.
runtime::Device& guest_device(const CFunctions& functions, const std::string& library, int number);
// From now on the guest's work is queued on the library's current stream. Throws the error of work
// that has failed meanwhile.
void follow_library(const CFunctions& functions, runtime::Device& guest, int number);
// Work that the library queues from now on comes behind the guest's.
void let_library_follow(const CFunctions& functions, runtime::Device& guest, int number);

}  // namespace megjit::python
