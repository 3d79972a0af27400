// backends/cuda/ -- NVIDIA GPUs through the CUDA driver: devices, streams, memory, launches.
// In: ops and kernels with their types. Out: Executables that queue work on a stream.
// Needs no CUDA to build: the driver is opened at run time. Knows no compiler.
//
// backends/cuda/driver.h -- libcuda.so.1 with prototypes of our own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megjit::cuda {

using Result = int;  // 0 is success
using DeviceId = int;
using Address = uint64_t;  // an address in the GPU's memory
using Context = struct OpaqueContext*;
using Module = struct OpaqueModule*;
using Function = struct OpaqueFunction*;
using StreamHandle = struct OpaqueStream*;
using Event = struct OpaqueEvent*;
using HostFunction = void (*)(void* data);
using GraphHandle = struct OpaqueGraph*;
using GraphNode = struct OpaqueGraphNode*;
using GraphExec = struct OpaqueGraphExec*;

// `extra` of a launch lists these keys, each followed by its value (CU_LAUNCH_PARAM_*).
inline void* const kParameterEnd = nullptr;
inline void* const kParameterBuffer = reinterpret_cast<void*>(1);
inline void* const kParameterBytes = reinterpret_cast<void*>(2);

// CUDA_KERNEL_NODE_PARAMS_v2, as cuda.h lays it out.
struct KernelNode {
    Function function = nullptr;
    unsigned grid[3] = {}, block[3] = {}, shared_bytes = 0;
    void** parameters = nullptr;
    void** extra = nullptr;
    void* kernel = nullptr;
    Context context = nullptr;
};

// X(name in the library, our name, parameters)
// clang-format off
#define MEGJIT_CUDA_FUNCTIONS(X) \
    X(cuInit, init, (unsigned flags)) \
    X(cuGetErrorName, error_name, (Result, const char** name)) \
    X(cuGetErrorString, error_text, (Result, const char** text)) \
    X(cuDriverGetVersion, version, (int* version)) \
    X(cuDeviceGetCount, device_count, (int* count)) \
    X(cuDeviceGet, device, (DeviceId*, int ordinal)) \
    X(cuDeviceGetName, device_name, (char* name, int bytes, DeviceId)) \
    X(cuDeviceGetAttribute, device_attribute, (int* value, int attribute, DeviceId)) \
    X(cuDeviceTotalMem_v2, total_memory, (size_t* bytes, DeviceId)) \
    X(cuDeviceGetUuid_v2, device_uuid, (char* sixteen_bytes, DeviceId)) \
    X(cuDevicePrimaryCtxRetain, retain_context, (Context*, DeviceId)) \
    X(cuCtxGetCurrent, current_context, (Context*)) \
    X(cuDeviceCanAccessPeer, can_access_peer, (int* can, DeviceId from, DeviceId to)) \
    X(cuCtxEnablePeerAccess, enable_peer_access, (Context peer, unsigned flags)) \
    X(cuCtxSetCurrent, set_context, (Context)) \
    X(cuStreamCreate, create_stream, (StreamHandle*, unsigned flags)) \
    X(cuStreamDestroy_v2, destroy_stream, (StreamHandle)) \
    X(cuStreamSynchronize, synchronize_stream, (StreamHandle)) \
    X(cuStreamWaitEvent, wait_event, (StreamHandle, Event, unsigned flags)) \
    X(cuLaunchHostFunc, launch_host, (StreamHandle, HostFunction, void* data)) \
    X(cuMemGetInfo_v2, memory_info, (size_t* free, size_t* total)) \
    X(cuMemAlloc_v2, allocate, (Address*, size_t bytes)) \
    X(cuMemFree_v2, free, (Address)) \
    X(cuMemHostAlloc, allocate_host, (void**, size_t bytes, unsigned flags)) \
    X(cuMemFreeHost, free_host, (void*)) \
    X(cuMemcpyHtoDAsync_v2, upload, (Address to, const void* from, size_t bytes, StreamHandle)) \
    X(cuMemcpyDtoHAsync_v2, download, (void* to, Address from, size_t bytes, StreamHandle)) \
    X(cuMemcpyDtoDAsync_v2, copy, (Address to, Address from, size_t bytes, StreamHandle)) \
    X(cuMemcpyPeerAsync, copy_peer, (Address to, Context, Address from, Context, size_t bytes, StreamHandle)) \
    X(cuMemsetD8Async, fill, (Address, unsigned char value, size_t bytes, StreamHandle)) \
    X(cuModuleLoadDataEx, load_module, (Module*, const void* image, unsigned count, int* options, void** values)) \
    X(cuModuleUnload, unload_module, (Module)) \
    X(cuModuleGetFunction, function, (Function*, Module, const char* name)) \
    X(cuFuncSetAttribute, set_function_attribute, (Function, int attribute, int value)) \
    X(cuLaunchKernel, launch, (Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle, void** parameters, void** extra)) \
    X(cuEventCreate, create_event, (Event*, unsigned flags)) \
    X(cuEventDestroy_v2, destroy_event, (Event)) \
    X(cuEventRecord, record_event, (Event, StreamHandle)) \
    X(cuEventQuery, query_event, (Event)) \
    X(cuEventSynchronize, synchronize_event, (Event)) \
    X(cuStreamBeginCapture_v2, begin_capture, (StreamHandle, int mode)) \
    X(cuThreadExchangeStreamCaptureMode, exchange_capture_mode, (int* mode)) \
    X(cuStreamEndCapture, end_capture, (StreamHandle, GraphHandle*)) \
    X(cuStreamGetCaptureInfo_v2, capture_info, (StreamHandle, int* status, uint64_t* id, GraphHandle*, \
                                                const GraphNode** last, size_t* count)) \
    X(cuGraphInstantiateWithFlags, instantiate, (GraphExec*, GraphHandle, unsigned long long flags)) \
    X(cuGraphExecKernelNodeSetParams_v2, set_kernel_node, (GraphExec, GraphNode, const KernelNode*)) \
    X(cuGraphLaunch, launch_graph, (GraphExec, StreamHandle)) \
    X(cuGraphDestroy, destroy_graph, (GraphHandle)) \
    X(cuGraphExecDestroy, destroy_exec, (GraphExec)) \
    X(cuPointerGetAttribute, pointer_attribute, (void* value, int attribute, Address)) \
    X(cuEventElapsedTime, elapsed, (float* ms, Event from, Event to))
// clang-format on

struct Functions {
#define MEGJIT_X(symbol, name, parameters) Result(*name) parameters = nullptr;
    MEGJIT_CUDA_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
};

// The driver, opened and initialised.
class CudaDriver {
public:
    // DeviceError in plain words when there is no driver (runtime/host/nvidia_libraries.h), or no
    // GPU.
    CudaDriver();
    // A driver that somebody else wrote (described_card.h).
    CudaDriver(const Functions& functions, bool is_emulated);

    const Functions& call() const { return functions_; }
    // The emulator (tests/card/emulator), a driver that executes on the host, tells its last fault.
    // A real driver has no such function: it is null.
    struct Emulation {
        const char* (*last_fault)() = nullptr;
    };
    const Emulation* emulation() const { return emulation_.last_fault ? &emulation_ : nullptr; }
    int device_count() const { return device_count_; }
    int version() const { return version_; }  // 12040 is CUDA 12.4
    // DeviceError that names the call, and the driver's text for the result.
    void check(Result result, const char* call) const;

private:
    Functions functions_;
    Emulation emulation_;
    int device_count_ = 0, version_ = 0;
};

}  // namespace megjit::cuda
