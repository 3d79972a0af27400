// tests/card/libraries/cudart.h -- what the files of the stand-in for libcudart share: calls of the
// driver, the thread's device, the thread's last error.
//
// The stand-in gives PyTorch's own CUDA build an emulated card, whose driver NVIDIA's libcudart
// refuses, for it asks for undocumented tables. It serves what PyTorch's allocator, copies,
// streams, events and captures need, by functions of the driver that are documented. PyTorch's
// kernels are machine code, which no emulated card executes: a launch is an error that names the
// kernel, but where it only fills memory with zeros.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#define MEGJIT_CUDART_API extern "C" __attribute__((visibility("default")))

namespace megjit::card_libraries {

// Null where the driver, that of MEGJIT_CUDA_DRIVER, lacks the function, or where there is none.
void* driver_function(const char* name);

template <class Function>
struct DriverCall;
template <class... Parameters>
struct DriverCall<CUresult(Parameters...)> {
    const char* name;
    // A CUresult is the cudaError_t of the same number.
    cudaError_t operator()(Parameters... arguments) const {
        auto* const function = reinterpret_cast<CUresult (*)(Parameters...)>(driver_function(name));
        return function ? static_cast<cudaError_t>(function(arguments...)) : cudaErrorNotSupported;
    }
};
// The header renames functions to their newest versions, and so does the text of the name.
#define MEGJIT_TEXT_OF(expanded) #expanded
#define MEGJIT_DRIVER(function) \
    megjit::card_libraries::DriverCall<decltype(function)> { MEGJIT_TEXT_OF(function) }

int current_device();
void set_current_device(int device);
// Starts the driver, once.
cudaError_t start();
// Starts the driver and makes the primary context of the thread's device current.
cudaError_t enter();
// Keeps an error for cudaGetLastError, and gives it back.
cudaError_t answer(cudaError_t result);
cudaError_t take_last_error();
cudaError_t last_runtime_error();

// The answer of a call that needs the device's context.
template <class Call>
cudaError_t on_device(const Call& call) {
    const cudaError_t entered = enter();
    return answer(entered == cudaSuccess ? call() : entered);
}

}  // namespace megjit::card_libraries
