#include "backends/nvrtc/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::nvrtc {
namespace {

namespace fs = std::filesystem;
using runtime::cat;
using runtime::DeviceError;

using Program = struct OpaqueProgram*;
using Result = int;

// The folder that holds the package megengine, and packages of others.
fs::path site_packages() {
    Dl_info self{};
    static const char anchor = 0;
    if (!dladdr(&anchor, &self) || !self.dli_fname) return {};
    return fs::path(self.dli_fname).parent_path().parent_path();
}

}  // namespace

struct Library::Functions {
    Result (*version)(int*, int*);
    Result (*arch_count)(int*);
    Result (*archs)(int*);
    const char* (*error_text)(Result);
    Result (*create)(Program*, const char* text, const char* name, int headers, const char* const*,
                     const char* const*);
    Result (*destroy)(Program*);
    Result (*compile)(Program, int options, const char* const*);
    Result (*log_size)(Program, size_t*);
    Result (*log)(Program, char*);
    Result (*cubin_size)(Program, size_t*);
    Result (*cubin)(Program, char*);
    Result (*ptx_size)(Program, size_t*);
    Result (*ptx)(Program, char*);

    explicit Functions(void* library) {
        const auto symbol = [&]<class Fn>(const char* name, Fn& fn) {
            fn = reinterpret_cast<Fn>(dlsym(library, name));
            if (!fn) throw DeviceError(cat("it lacks ", name));
        };
        symbol("nvrtcVersion", version);
        symbol("nvrtcGetNumSupportedArchs", arch_count);
        symbol("nvrtcGetSupportedArchs", archs);
        symbol("nvrtcGetErrorString", error_text);
        symbol("nvrtcCreateProgram", create);
        symbol("nvrtcDestroyProgram", destroy);
        symbol("nvrtcCompileProgram", compile);
        symbol("nvrtcGetProgramLogSize", log_size);
        symbol("nvrtcGetProgramLog", log);
        symbol("nvrtcGetCUBINSize", cubin_size);
        symbol("nvrtcGetCUBIN", cubin);
        symbol("nvrtcGetPTXSize", ptx_size);
        symbol("nvrtcGetPTX", ptx);
    }
    void check(Result result, const char* call) const {
        if (result != 0) throw DeviceError(cat("NVRTC: ", call, " failed: ", error_text(result)));
    }
    // A text whose size is asked for first.
    std::string read(Program program, Result (*size_of)(Program, size_t*),
                     Result (*get)(Program, char*), const char* call) const {
        size_t size = 0;
        check(size_of(program, &size), call);
        std::string bytes(size, '\0');
        check(get(program, bytes.data()), call);
        return bytes;
    }
};

std::vector<fs::path> Library::candidates() {
    if (const std::string& named = runtime::debug().nvrtc; !named.empty()) return {named};
    const fs::path packages = site_packages();
    std::vector<fs::path> paths = {"libnvrtc.so.13", "libnvrtc.so.12",
                                   packages / "nvidia/cu13/lib/libnvrtc.so.13",
                                   packages / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"};
    std::vector<fs::path> toolkits;
    std::error_code ignored;
    for (fs::directory_iterator it("/usr/local", ignored), end; !ignored && it != end;
         it.increment(ignored))
        if (it->path().filename().string().starts_with("cuda"))
            toolkits.push_back(it->path() / "lib64");
    std::sort(toolkits.rbegin(), toolkits.rend());
    for (const fs::path& toolkit : toolkits)
        for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"})
            paths.push_back(toolkit / name);
    return paths;
}

Library::Library(const std::vector<fs::path>& candidates) {
    why_not_ = "no libnvrtc was found";
    for (const fs::path& path : candidates) {
        if (handle_) return;
        open(path);
    }
}

void Library::open(const fs::path& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        if (std::error_code ignored; fs::exists(path, ignored)) why_not_ = dlerror();
        return;
    }
    try {
        const auto functions = std::make_shared<const Functions>(library);
        int major = 0, minor = 0, count = 0;
        functions->check(functions->version(&major, &minor), "nvrtcVersion");
        functions->check(functions->arch_count(&count), "nvrtcGetNumSupportedArchs");
        archs_.resize(static_cast<size_t>(count));
        functions->check(functions->archs(archs_.data()), "nvrtcGetSupportedArchs");
        std::sort(archs_.begin(), archs_.end());
        version_ = cat(major, ".", minor);
        functions_ = functions;
        handle_ = library;
    } catch (const DeviceError& error) { why_not_ = cat(path.string(), ": ", error.what()); }
}

std::string Library::compile(const std::string& text, const std::string& target) const {
    const Functions& nvrtc = *functions_;
    Program program = nullptr;
    nvrtc.check(nvrtc.create(&program, text.c_str(), "megjit_kernel.cu", 0, nullptr, nullptr),
                "nvrtcCreateProgram");
    const auto destroy = [&](OpaqueProgram*) { nvrtc.destroy(&program); };
    const std::unique_ptr<OpaqueProgram, decltype(destroy)> owner(program, destroy);
    const std::string arch = "--gpu-architecture=" + target;
    // The bits of eager kernels: nothing contracted, flushed or approximated.
    const char* const options[] = {arch.c_str(),  "--std=c++17",     "--fmad=false",
                                   "--ftz=false", "--prec-div=true", "--prec-sqrt=true"};
    if (const Result result = nvrtc.compile(program, static_cast<int>(std::size(options)), options);
        result != 0)
        throw DeviceError(
            cat("NVRTC: cannot compile a kernel for ", target, ": ", nvrtc.error_text(result), "\n",
                nvrtc.read(program, nvrtc.log_size, nvrtc.log, "nvrtcGetProgramLog").c_str(), "\n",
                text));
    if (target.starts_with("sm_"))
        return nvrtc.read(program, nvrtc.cubin_size, nvrtc.cubin, "nvrtcGetCUBIN");
    return nvrtc.read(program, nvrtc.ptx_size, nvrtc.ptx, "nvrtcGetPTX");
}

}  // namespace megjit::nvrtc
