#include "backends/nvrtc/library.h"

#include <algorithm>
#include <memory>

#include "runtime/host/error.h"

namespace megjit::nvrtc {
namespace {

using runtime::cat;
using runtime::DeviceError;

using Program = struct OpaqueProgram*;
using Result = int;

}  // namespace

struct Library::Functions {
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

    explicit Functions(const runtime::FoundLibrary& library) {
        library.function("nvrtcGetNumSupportedArchs", arch_count);
        library.function("nvrtcGetSupportedArchs", archs);
        library.function("nvrtcGetErrorString", error_text);
        library.function("nvrtcCreateProgram", create);
        library.function("nvrtcDestroyProgram", destroy);
        library.function("nvrtcCompileProgram", compile);
        library.function("nvrtcGetProgramLogSize", log_size);
        library.function("nvrtcGetProgramLog", log);
        library.function("nvrtcGetCUBINSize", cubin_size);
        library.function("nvrtcGetCUBIN", cubin);
        library.function("nvrtcGetPTXSize", ptx_size);
        library.function("nvrtcGetPTX", ptx);
    }
    void check(Result result, const char* call) const {
        if (result != 0) throw DeviceError(cat("NVRTC: ", call, " failed: ", error_text(result)));
    }
    // Reads a text from NVRTC, after its size.
    std::string read(Program program, Result (*size_of)(Program, size_t*),
                     Result (*get)(Program, char*), const char* call) const {
        size_t size = 0;
        check(size_of(program, &size), call);
        std::string bytes(size, '\0');
        check(get(program, bytes.data()), call);
        return bytes;
    }
};

Library::Library(const std::vector<std::filesystem::path>& candidates)
    : library_(runtime::open_library(runtime::NvidiaLibrary::nvrtc, candidates)) {
    if (!library_) return;
    try {
        const auto functions = std::make_shared<const Functions>(library_);
        int count = 0;
        functions->check(functions->arch_count(&count), "nvrtcGetNumSupportedArchs");
        archs_.resize(static_cast<size_t>(count));
        functions->check(functions->archs(archs_.data()), "nvrtcGetSupportedArchs");
        std::sort(archs_.begin(), archs_.end());
        functions_ = functions;
    } catch (const DeviceError& error) { library_.why_not = error.what(); }
}

std::string Library::compile(const std::string& text, const std::string& target) const {
    const Functions& nvrtc = *functions_;
    Program program = nullptr;
    nvrtc.check(nvrtc.create(&program, text.c_str(), "megjit_kernel.cu", 0, nullptr, nullptr),
                "nvrtcCreateProgram");
    const auto destroy = [&](OpaqueProgram*) { nvrtc.destroy(&program); };
    const std::unique_ptr<OpaqueProgram, decltype(destroy)> owner(program, destroy);
    const std::string arch = "--gpu-architecture=" + target;
    // These give the bits of eager kernels: nothing is contracted, flushed or approximated.
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
