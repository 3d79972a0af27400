// Streams, events, captures, host functions.
#include "tests/card/libraries/cudart.h"

using namespace megjit::card_libraries;

MEGJIT_CUDART_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                                           int priority) {
    return on_device(
        [=] { return MEGJIT_DRIVER(cuStreamCreateWithPriority)(stream, flags, priority); });
}
MEGJIT_CUDART_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
MEGJIT_CUDART_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithPriority(stream, 0, 0);
}
MEGJIT_CUDART_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return on_device([=] { return MEGJIT_DRIVER(cuStreamDestroy)(stream); });
}
MEGJIT_CUDART_API cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    return on_device([=] { return MEGJIT_DRIVER(cuStreamGetPriority)(stream, priority); });
}
MEGJIT_CUDART_API cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return on_device([=] { return MEGJIT_DRIVER(cuStreamQuery)(stream); });
}
MEGJIT_CUDART_API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return on_device([=] { return MEGJIT_DRIVER(cuStreamSynchronize)(stream); });
}
MEGJIT_CUDART_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                                  unsigned flags) {
    return on_device([=] { return MEGJIT_DRIVER(cuStreamWaitEvent)(stream, event, flags); });
}
MEGJIT_CUDART_API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                                                 void* data) {
    return on_device([=] {
        return DriverCall<CUresult(CUstream, CUhostFn, void*)>{"cuLaunchHostFunc"}(stream, function,
                                                                                   data);
    });
}

// ---- captures

MEGJIT_CUDART_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                                     cudaStreamCaptureMode mode) {
    return on_device([=] {
        return MEGJIT_DRIVER(cuStreamBeginCapture)(stream, static_cast<CUstreamCaptureMode>(mode));
    });
}
MEGJIT_CUDART_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    return on_device([=] { return MEGJIT_DRIVER(cuStreamEndCapture)(stream, graph); });
}
MEGJIT_CUDART_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                    cudaStreamCaptureStatus* status) {
    return on_device([=] {
        return MEGJIT_DRIVER(cuStreamIsCapturing)(stream,
                                                  reinterpret_cast<CUstreamCaptureStatus*>(status));
    });
}
MEGJIT_CUDART_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                                       cudaStreamCaptureStatus* status,
                                                       unsigned long long* id, cudaGraph_t* graph,
                                                       const cudaGraphNode_t** after,
                                                       const cudaGraphEdgeData** edges,
                                                       size_t* count) {
    return on_device([=] {
        return MEGJIT_DRIVER(cuStreamGetCaptureInfo)(
            stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
            reinterpret_cast<cuuint64_t*>(id), graph, after,
            reinterpret_cast<const CUgraphEdgeData**>(edges), count);
    });
}
MEGJIT_CUDART_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return on_device([=] {
        return MEGJIT_DRIVER(cuThreadExchangeStreamCaptureMode)(
            reinterpret_cast<CUstreamCaptureMode*>(mode));
    });
}
MEGJIT_CUDART_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made,
                                                            cudaGraph_t graph,
                                                            unsigned long long flags) {
    return on_device(
        [=] { return MEGJIT_DRIVER(cuGraphInstantiateWithFlags)(made, graph, flags); });
}
MEGJIT_CUDART_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                                   unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(made, graph, flags);
}
MEGJIT_CUDART_API cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    return on_device([=] { return MEGJIT_DRIVER(cuGraphLaunch)(graph, stream); });
}
MEGJIT_CUDART_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                                size_t* count) {
    return on_device([=] { return MEGJIT_DRIVER(cuGraphGetNodes)(graph, nodes, count); });
}
MEGJIT_CUDART_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return on_device([=] { return MEGJIT_DRIVER(cuGraphDestroy)(graph); });
}
MEGJIT_CUDART_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    return on_device([=] { return MEGJIT_DRIVER(cuGraphExecDestroy)(graph); });
}

// ---- events

MEGJIT_CUDART_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    return on_device([=] { return MEGJIT_DRIVER(cuEventCreate)(event, flags); });
}
MEGJIT_CUDART_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, 0);
}
MEGJIT_CUDART_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return on_device([=] { return MEGJIT_DRIVER(cuEventDestroy)(event); });
}
MEGJIT_CUDART_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                                       unsigned flags) {
    return on_device([=] { return MEGJIT_DRIVER(cuEventRecordWithFlags)(event, stream, flags); });
}
MEGJIT_CUDART_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}
MEGJIT_CUDART_API cudaError_t cudaEventQuery(cudaEvent_t event) {
    return on_device([=] { return MEGJIT_DRIVER(cuEventQuery)(event); });
}
MEGJIT_CUDART_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return on_device([=] { return MEGJIT_DRIVER(cuEventSynchronize)(event); });
}
MEGJIT_CUDART_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                                   cudaEvent_t end) {
    return on_device([=] { return MEGJIT_DRIVER(cuEventElapsedTime)(milliseconds, begin, end); });
}
