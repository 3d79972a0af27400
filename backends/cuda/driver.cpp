#include "backends/cuda/driver.h"

#include <dlfcn.h>

#include "runtime/host/error.h"
#include "runtime/host/nvidia_libraries.h"

namespace megjit::cuda {

using runtime::cat;
using runtime::DeviceError;

CudaDriver::CudaDriver() {
    const runtime::FoundLibrary& found = runtime::find_library(runtime::NvidiaLibrary::driver);
    if (!found) throw DeviceError(cat("there is no CUDA driver: ", found.why_not));
#define MEGJIT_X(symbol, name, parameters) found.function(#symbol, functions_.name);
    MEGJIT_CUDA_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
    emulation_.last_fault =
        reinterpret_cast<const char* (*)()>(dlsym(found.handle, "megjit_card_last_fault"));
    check(functions_.init(0), "cuInit");
    check(functions_.version(&version_), "cuDriverGetVersion");
    check(functions_.device_count(&device_count_), "cuDeviceGetCount");
    if (device_count_ == 0) throw DeviceError("the CUDA driver sees no GPU");
}

CudaDriver::CudaDriver(const Functions& functions, bool is_emulated) : functions_(functions) {
    if (is_emulated) emulation_.last_fault = [] { return ""; };
}

void CudaDriver::check(Result result, const char* call) const {
    if (result == 0) return;
    const char *name = nullptr, *text = nullptr;
    functions_.error_name(result, &name);
    functions_.error_text(result, &text);
    throw DeviceError(cat("CUDA: ", call, " failed: ", name ? name : "unknown error", " (", result,
                          ")", text ? ": " : "", text ? text : ""));
}

}  // namespace megjit::cuda
