#include "backends/cuda/driver.h"

#include <dlfcn.h>

#include "codegen/plugin_compiler.h"
#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::cuda {
namespace {

using runtime::cat;
using runtime::DeviceError;

std::filesystem::path default_library() {
    const runtime::Debug& debug = runtime::debug();
    if (!debug.cuda_driver.empty()) return debug.cuda_driver;
    return debug.emulated_gpus > 0 ? codegen::plugin_path("libmegjit_card.so") : "libcuda.so.1";
}

}  // namespace

CudaDriver::CudaDriver() : CudaDriver(default_library()) {}

CudaDriver::CudaDriver(const std::filesystem::path& library) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed
    if (!handle) throw DeviceError(cat("there is no CUDA driver: ", dlerror()));
    const auto symbol = [&]<class Fn>(const char* name, Fn& fn) {
        fn = reinterpret_cast<Fn>(dlsym(handle, name));
        if (!fn)
            throw DeviceError(
                cat("the CUDA driver ", library.string(), " lacks ", name, ": it is too old"));
    };
#define MEGJIT_X(name, ours, parameters) symbol(#name, functions_.ours);
    MEGJIT_CUDA_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
    emulation_.host_pointer = reinterpret_cast<decltype(emulation_.host_pointer)>(
        dlsym(handle, "megjit_card_host_pointer"));
    emulation_.last_fault =
        reinterpret_cast<decltype(emulation_.last_fault)>(dlsym(handle, "megjit_card_last_fault"));
    emulation_.spend =
        reinterpret_cast<decltype(emulation_.spend)>(dlsym(handle, "megjit_card_spend"));
    check(functions_.init(0), "cuInit");
    check(functions_.version(&version_), "cuDriverGetVersion");
    check(functions_.device_count(&device_count_), "cuDeviceGetCount");
    if (device_count_ == 0) throw DeviceError("the CUDA driver sees no GPU");
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
