// A CUDA driver without a GPU: memory is the host's, calls are noted, and any of them fails when
// told to. Declared as in cuda.h, not by our own header, so that both are compared.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

std::string log, failing;
int failure = 0;

template <class... Parts>
int note(const char* call, const Parts&... parts) {
    std::ostringstream line;
    line << call;
    ((line << ' ' << parts), ...);
    log += line.str() + "\n";
    return call == failing ? failure : 0;
}

template <class T>
T* token(uintptr_t number) {
    return reinterpret_cast<T*>(number);
}

}  // namespace

// --- for tests ---
EXPORT const char* cuda_mock_log() { return log.c_str(); }
EXPORT void cuda_mock_reset(const char* call_that_fails, int result) {
    log.clear();
    failing = call_that_fails;
    failure = result;
}

// --- the driver ---
EXPORT int cuInit(unsigned flags) { return note("cuInit", flags); }
EXPORT int cuGetErrorName(int error, const char** name) {
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 999 ? "CUDA_ERROR_UNKNOWN" : nullptr;
    return *name ? 0 : 1;
}
EXPORT int cuGetErrorString(int error, const char** text) {
    *text = error == 2 ? "out of memory" : nullptr;
    return *text ? 0 : 1;
}
EXPORT int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}
EXPORT int cuDeviceGetCount(int* count) {
    *count = failing == "no GPU" ? 0 : 1;
    return 0;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
    *device = 40 + ordinal;
    return note("cuDeviceGet", ordinal);
}
EXPORT int cuDeviceGetName(char* name, int bytes, int) {
    std::strncpy(name, "Mock GPU", static_cast<size_t>(bytes));
    return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : -1;
    return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = token<void>(0xC0);
    return note("cuDevicePrimaryCtxRetain", device);
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    return note("cuDevicePrimaryCtxRelease", device);
}
EXPORT int cuCtxSetCurrent(void* context) {
    return context == token<void>(0xC0) ? 0 : note("cuCtxSetCurrent of another context");
}
EXPORT int cuStreamCreate(void** stream, unsigned flags) {
    *stream = token<void>(0x57);
    return note("cuStreamCreate", flags);
}
EXPORT int cuStreamDestroy_v2(void* stream) { return note("cuStreamDestroy", stream); }
EXPORT int cuStreamSynchronize(void* stream) { return note("cuStreamSynchronize", stream); }
EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
    *free = 1000;
    *total = 5000;
    return 0;
}
EXPORT int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
    if (const int result = note("cuMemAlloc", bytes)) return result;
    *address =
        reinterpret_cast<unsigned long long>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    return 0;
}
EXPORT int cuMemFree_v2(unsigned long long address) {
    std::free(token<void>(address));
    return note("cuMemFree");
}
EXPORT int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t bytes, void*) {
    std::memcpy(token<void>(to), from, bytes);
    return note("cuMemcpyHtoD", bytes);
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t bytes, void*) {
    std::memcpy(to, token<void>(from), bytes);
    return note("cuMemcpyDtoH", bytes);
}
EXPORT int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes, void*) {
    std::memset(token<void>(to), value, bytes);
    return note("cuMemsetD8", bytes);
}
EXPORT int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options,
                              void** values) {
    const int result = note("cuModuleLoadData", static_cast<const char*>(image));
    *module = token<void>(0x30);
    if (result && count == 2 && options[0] == 5 && options[1] == 6)
        std::strncpy(static_cast<char*>(values[0]), "ptxas: no such instruction",
                     reinterpret_cast<size_t>(values[1]));
    return result;
}
EXPORT int cuModuleUnload(void* module) { return note("cuModuleUnload", module); }
EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
    *function = token<void>(0xF0);
    return note("cuModuleGetFunction", module, name);
}
EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
    return note("cuFuncSetAttribute", function, attribute, value);
}
EXPORT int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void* stream,
                          void** parameters, void** extra) {
    std::ostringstream words;
    if (!parameters && extra[0] == token<void>(1) && extra[2] == token<void>(2) && !extra[4])
        for (size_t w = 0; w < *static_cast<size_t*>(extra[3]) / 8; ++w)
            words << static_cast<uint64_t*>(extra[1])[w] << ',';
    return note("cuLaunchKernel", function, gx, gy, gz, bx, by, bz, shared, stream, words.str());
}
EXPORT int cuEventCreate(void** event, unsigned) {
    static uintptr_t next = 0xE0;
    *event = token<void>(next++);
    return note("cuEventCreate");
}
EXPORT int cuEventDestroy_v2(void*) { return note("cuEventDestroy"); }
EXPORT int cuEventRecord(void*, void* stream) { return note("cuEventRecord", stream); }
EXPORT int cuEventSynchronize(void*) { return note("cuEventSynchronize"); }
EXPORT int cuEventElapsedTime(float* ms, void*, void*) {
    *ms = 1.5f;
    return 0;
}
