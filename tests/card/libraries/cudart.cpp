// Devices, errors and memory.
#include "tests/card/libraries/cudart.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace megjit::card_libraries {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int device = 0;

void* driver() {
    static void* const library = [] {
        const char* const path = std::getenv("MEGJIT_CUDA_DRIVER");
        return dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    }();
    return library;
}

cudaError_t context_of(int number, CUcontext& context) {
    static std::mutex mutex;
    static std::map<int, CUcontext> contexts;
    const std::lock_guard lock(mutex);
    CUcontext& there = contexts[number];
    if (!there)
        if (const cudaError_t error = MEGJIT_DRIVER(cuDevicePrimaryCtxRetain)(&there, number))
            return error;
    context = there;
    return cudaSuccess;
}

}  // namespace

void* driver_function(const char* name) { return driver() ? dlsym(driver(), name) : nullptr; }

int current_device() { return device; }
void set_current_device(int number) { device = number; }

cudaError_t start() {
    static const cudaError_t result = driver() ? MEGJIT_DRIVER(cuInit)(0) : cudaErrorNoDevice;
    return result;
}

cudaError_t enter() {
    if (const cudaError_t error = start()) return error;
    CUcontext context = nullptr;
    if (const cudaError_t error = context_of(device, context)) return error;
    return MEGJIT_DRIVER(cuCtxSetCurrent)(context);
}

cudaError_t answer(cudaError_t result) {
    if (result != cudaSuccess && result != cudaErrorNotReady) last_error = result;
    return result;
}
cudaError_t take_last_error() { return std::exchange(last_error, cudaSuccess); }
cudaError_t last_runtime_error() { return last_error; }

}  // namespace megjit::card_libraries

using namespace megjit::card_libraries;

namespace {

CUdeviceptr at(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
CUdeviceptr* at(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
    if (bytes == 0) return cudaSuccess;
    switch (kind) {
        case cudaMemcpyHostToDevice:
            return MEGJIT_DRIVER(cuMemcpyHtoDAsync)(at(to), from, bytes, stream);
        case cudaMemcpyDeviceToHost:
            return MEGJIT_DRIVER(cuMemcpyDtoHAsync)(to, at(from), bytes, stream);
        case cudaMemcpyDeviceToDevice:
            return MEGJIT_DRIVER(cuMemcpyDtoDAsync)(at(to), at(from), bytes, stream);
        default: return MEGJIT_DRIVER(cuMemcpyAsync)(at(to), at(from), bytes, stream);
    }
}

}  // namespace

// ---- devices and errors

MEGJIT_CUDART_API cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    const cudaError_t started = start();
    return answer(started ? started : MEGJIT_DRIVER(cuDeviceGetCount)(count));
}
MEGJIT_CUDART_API cudaError_t cudaGetDevice(int* device) {
    *device = current_device();
    return cudaSuccess;
}
MEGJIT_CUDART_API cudaError_t cudaSetDevice(int device) {
    set_current_device(device);
    return answer(enter());
}
MEGJIT_CUDART_API cudaError_t cudaDriverGetVersion(int* version) {
    *version = 0;
    return start() ? cudaSuccess : answer(MEGJIT_DRIVER(cuDriverGetVersion)(version));
}
MEGJIT_CUDART_API cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
MEGJIT_CUDART_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                                     int device) {
    const cudaError_t started = start();
    const auto number = static_cast<CUdevice_attribute>(attribute);
    return answer(started ? started : MEGJIT_DRIVER(cuDeviceGetAttribute)(value, number, device));
}
MEGJIT_CUDART_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
    if (const cudaError_t error = start()) return answer(error);
    cudaDeviceProp p{};
    MEGJIT_DRIVER(cuDeviceGetName)(p.name, sizeof p.name, device);
    MEGJIT_DRIVER(cuDeviceTotalMem)(&p.totalGlobalMem, device);
    const auto attribute = [device](CUdevice_attribute number) {
        int value = 0;
        MEGJIT_DRIVER(cuDeviceGetAttribute)(&value, number, device);
        return value;
    };
    p.major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    p.minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    p.multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    p.maxThreadsPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    p.maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    p.maxThreadsDim[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
    p.maxThreadsDim[1] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
    p.maxThreadsDim[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
    p.maxGridSize[0] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
    p.maxGridSize[1] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
    p.maxGridSize[2] = attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
    const auto bytes = [&attribute](CUdevice_attribute number) {
        return static_cast<size_t>(attribute(number));
    };
    p.sharedMemPerBlock = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    p.sharedMemPerBlockOptin = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    p.sharedMemPerMultiprocessor = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    p.regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    p.regsPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    p.warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    p.l2CacheSize = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    p.unifiedAddressing = p.canMapHostMemory = p.concurrentKernels = 1;
    *found = p;
    return cudaSuccess;
}
MEGJIT_CUDART_API cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
    return answer(MEGJIT_DRIVER(cuDeviceGetPCIBusId)(text, bytes, device));
}
MEGJIT_CUDART_API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    return answer(MEGJIT_DRIVER(cuDeviceCanAccessPeer)(can, device, peer));
}
MEGJIT_CUDART_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return on_device([=] { return MEGJIT_DRIVER(cuCtxGetStreamPriorityRange)(least, greatest); });
}
MEGJIT_CUDART_API cudaError_t cudaDeviceSynchronize() {
    return on_device([] {
        return DriverCall<CUresult()>{"cuCtxSynchronize"}();  // the header may rename it
    });
}
MEGJIT_CUDART_API cudaError_t cudaGetLastError() { return take_last_error(); }
MEGJIT_CUDART_API cudaError_t cudaPeekAtLastError() { return last_runtime_error(); }
MEGJIT_CUDART_API const char* cudaGetErrorString(cudaError_t error) {
    const char* text = "unknown error";
    MEGJIT_DRIVER(cuGetErrorString)(static_cast<CUresult>(error), &text);
    return text;
}
MEGJIT_CUDART_API const char* cudaGetErrorName(cudaError_t error) {
    const char* text = "cudaErrorUnknown";
    MEGJIT_DRIVER(cuGetErrorName)(static_cast<CUresult>(error), &text);
    return text;
}
// PyTorch asks for functions of drivers that may be older, and looks whether it got them.
MEGJIT_CUDART_API cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned version, unsigned long long flags,
    cudaDriverEntryPointQueryResult* result) {
    if (const cudaError_t error = start()) return answer(error);
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (MEGJIT_DRIVER(cuGetProcAddress)(name, function, static_cast<int>(version), flags, &found))
        *function = nullptr;
    if (result) *result = static_cast<cudaDriverEntryPointQueryResult>(found);
    return cudaSuccess;
}

// ---- memory

MEGJIT_CUDART_API cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    return on_device([=] { return MEGJIT_DRIVER(cuMemAlloc)(at(pointer), bytes); });
}
MEGJIT_CUDART_API cudaError_t cudaFree(void* pointer) {
    return on_device([=] { return pointer ? MEGJIT_DRIVER(cuMemFree)(at(pointer)) : cudaSuccess; });
}
MEGJIT_CUDART_API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    return on_device([=] { return MEGJIT_DRIVER(cuMemGetInfo)(free, total); });
}
MEGJIT_CUDART_API cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
    return on_device([=] { return MEGJIT_DRIVER(cuMemHostAlloc)(pointer, bytes, flags); });
}
MEGJIT_CUDART_API cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
    return cudaHostAlloc(pointer, bytes, 0);
}
MEGJIT_CUDART_API cudaError_t cudaFreeHost(void* pointer) {
    return on_device([=] { return MEGJIT_DRIVER(cuMemFreeHost)(pointer); });
}
MEGJIT_CUDART_API cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
    return on_device([=] { return MEGJIT_DRIVER(cuMemHostRegister)(pointer, bytes, flags); });
}
MEGJIT_CUDART_API cudaError_t cudaHostUnregister(void* pointer) {
    return on_device([=] { return MEGJIT_DRIVER(cuMemHostUnregister)(pointer); });
}
// Memory that the driver does not know is the host's, which is no error.
MEGJIT_CUDART_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found,
                                                       const void* pointer) {
    return on_device([=] {
        cudaPointerAttributes attributes{};
        unsigned type = 0;
        attributes.hostPointer = const_cast<void*>(pointer);
        attributes.device = -1;
        if (!MEGJIT_DRIVER(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                  at(pointer))) {
            MEGJIT_DRIVER(cuPointerGetAttribute)(&attributes.device,
                                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at(pointer));
            attributes.type = static_cast<cudaMemoryType>(type);
            attributes.devicePointer = const_cast<void*>(pointer);
            if (type != CU_MEMORYTYPE_HOST) attributes.hostPointer = nullptr;
        }
        *found = attributes;
        return cudaSuccess;
    });
}
MEGJIT_CUDART_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                              cudaMemcpyKind kind, cudaStream_t stream) {
    return on_device([=] { return copy(to, from, bytes, kind, stream); });
}
MEGJIT_CUDART_API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                                         cudaMemcpyKind kind) {
    return on_device([=] {
        const cudaError_t error = copy(to, from, bytes, kind, nullptr);
        return error ? error : MEGJIT_DRIVER(cuStreamSynchronize)(nullptr);
    });
}
MEGJIT_CUDART_API cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                                              cudaStream_t stream) {
    return on_device([=] {
        return bytes ? MEGJIT_DRIVER(cuMemsetD8Async)(at(to), static_cast<unsigned char>(value),
                                                      bytes, stream)
                     : cudaSuccess;
    });
}
MEGJIT_CUDART_API cudaError_t cudaMemset(void* to, int value, size_t bytes) {
    return cudaMemsetAsync(to, value, bytes, nullptr);
}
