// PyTorch's kernels: they are registered, and a launch is refused by name, but for fills with
// zeros.
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "tests/card/libraries/cudart.h"

using namespace megjit::card_libraries;

namespace {

struct Kernels {
    std::mutex mutex;
    std::map<const void*, std::string> names;
};
Kernels& kernels() {  // libraries register theirs before main()
    static auto& made = *new Kernels;
    return made;
}

std::string name_of(const void* kernel) {
    const std::lock_guard lock(kernels().mutex);
    const auto found = kernels().names.find(kernel);
    return found == kernels().names.end() ? "(unknown)" : found->second;
}

// The bytes of an element of the kernel that fills memory, by its type's mangled name; 0 of any
// other kernel.
size_t filled_bytes(const std::string& name) {
    constexpr std::string_view kFill = "FillFunctorI";
    const size_t type = name.find(kFill);
    if (type == std::string::npos || name.find("vectorized_elementwise_kernel") > type) return 0;
    const char letter = name[type + kFill.size()];
    for (const auto& [letters, bytes] : {std::pair{"bah", 1}, {"s", 2}, {"if", 4}, {"ld", 8}})
        if (std::string_view(letters).find(letter) != std::string_view::npos) return bytes;
    return 0;
}

// PyTorch before 2.15 makes zeros by a kernel whose arguments are a count, a value and a place.
cudaError_t launch(const void* kernel, void** arguments, cudaStream_t stream) {
    const std::string name = name_of(kernel);
    if (const size_t bytes = filled_bytes(name)) {
        const std::string value(static_cast<const char*>(arguments[1]), bytes);
        const auto count = static_cast<size_t>(*static_cast<const int*>(arguments[0]));
        if (value == std::string(bytes, '\0'))
            return cudaMemsetAsync(*static_cast<void**>(arguments[2]), 0, count * bytes, stream);
    }
    std::fprintf(stderr, "the emulated card has no machine code of PyTorch's kernel %s\n",
                 name.c_str());
    return answer(cudaErrorNotSupported);
}

struct Launch {
    dim3 grid, block;
    size_t shared_bytes = 0;
    cudaStream_t stream = nullptr;
};
thread_local Launch configured;

}  // namespace

// What compiled kernels call when a library is loaded, and around each launch.
MEGJIT_CUDART_API void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
MEGJIT_CUDART_API void __cudaRegisterFatBinaryEnd(void**) {}
MEGJIT_CUDART_API void __cudaUnregisterFatBinary(void**) {}
MEGJIT_CUDART_API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {
}
MEGJIT_CUDART_API void __cudaRegisterFunction(void**, const char* host, char*, const char* name,
                                              int, uint3*, uint3*, dim3*, dim3*, int*) {
    const std::lock_guard lock(kernels().mutex);
    kernels().names[host] = name;
}
MEGJIT_CUDART_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                       cudaStream_t stream) {
    configured = {grid, block, shared_bytes, stream};
    return 0;
}
MEGJIT_CUDART_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                                         size_t* shared_bytes, void* stream) {
    *grid = configured.grid;
    *block = configured.block;
    *shared_bytes = configured.shared_bytes;
    *static_cast<cudaStream_t*>(stream) = configured.stream;
    return cudaSuccess;
}
MEGJIT_CUDART_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
MEGJIT_CUDART_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments,
                                                 size_t, cudaStream_t stream) {
    return launch(kernel, arguments, stream);
}
MEGJIT_CUDART_API cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void** arguments,
                                               size_t, cudaStream_t stream) {
    return launch(kernel, arguments, stream);
}
MEGJIT_CUDART_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                                  const void* kernel, void** arguments) {
    return launch(kernel, arguments, config->stream);
}

// PyTorch asks for these before a launch, which then tells the kernel's name.
MEGJIT_CUDART_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
    *found = {};
    found->maxThreadsPerBlock = 1024;
    found->binaryVersion = found->ptxVersion = 90;
    return cudaSuccess;
}
MEGJIT_CUDART_API cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
    return cudaSuccess;
}
MEGJIT_CUDART_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                                     const void*,
                                                                                     int, size_t,
                                                                                     unsigned) {
    *blocks = 1;
    return cudaSuccess;
}
MEGJIT_CUDART_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                            const void* kernel,
                                                                            int threads,
                                                                            size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads,
                                                                  shared_bytes, 0);
}
