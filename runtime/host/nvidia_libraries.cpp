#include "runtime/host/nvidia_libraries.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/plugin_path.h"

namespace megjit::runtime {
namespace {

namespace fs = std::filesystem;
using Library = NvidiaLibrary;

struct Version {
    int number = 0;
    std::string text = {};
};

template <class Result, class... Out>
Result ask(void* library, const char* symbol, Out*... out) {
    const auto fn = reinterpret_cast<Result (*)(Out*...)>(dlsym(library, symbol));
    if (!fn) throw DeviceError(cat("it lacks ", symbol));
    return fn(out...);
}
// Calls a function that returns a status.
template <class... Out>
void ask_for(void* library, const char* symbol, Out*... out) {
    if (const int status = ask<int>(library, symbol, out...))
        throw DeviceError(cat(symbol, " returned ", status));
}

// 92700 as 9.27.0
Version three_parts(int number) {
    return {number, cat(number / 10000, ".", number / 100 % 100, ".", number % 100)};
}

Version driver_version(void* library) {
    int number = 0;
    ask_for(library, "cuDriverGetVersion", &number);
    return {number, cat(number / 1000, ".", number / 10 % 100)};
}

Version nvrtc_version(void* library) {
    int major = 0, minor = 0;
    ask_for(library, "nvrtcVersion", &major, &minor);
    return {1000 * major + 10 * minor, cat(major, ".", minor)};
}

Version cudnn_version(void* library) {
    return three_parts(static_cast<int>(ask<size_t>(library, "cudnnGetVersion")));
}

Version cublaslt_version(void* library) {
    return three_parts(static_cast<int>(ask<size_t>(library, "cublasLtGetVersion")));
}

Version nccl_version(void* library) {
    int number = 0;
    ask_for(library, "ncclGetVersion", &number);
    return three_parts(number);
}

// The major version of CUDA that a library was built for; 0: any driver runs the library.
int cuda_of_nvrtc(void*, const Version& version) { return version.number / 1000; }
int cuda_of_cublaslt(void*, const Version& version) { return version.number / 10000; }
int cuda_of_cudnn(void* library, const Version&) {
    return static_cast<int>(ask<size_t>(library, "cudnnGetCudartVersion") / 1000);
}
int of_any_cuda(void*, const Version&) { return 0; }

struct LibraryRow {
    std::string_view name;
    std::string_view fix;  // what to do where the library is missing
    std::vector<std::string> files;  // newest first
    std::vector<std::string> wheels;  // folders of packages
    Version (*version)(void* library);
    int (*cuda)(void* library, const Version& version);
    int oldest = 0;
    std::string_view oldest_text;
    std::string Debug::* variable;
    std::string_view emulated = {};  // file that emulated GPUs use; "": the real one
};

const LibraryRow& entry(Library library) {
    static const std::array<LibraryRow, std::size(kNvidiaLibraries)> table = {{
        {"CUDA driver",
         "install NVIDIA's driver",
         {"libcuda.so.1"},
         {},
         driver_version,
         of_any_cuda,
         12000,
         "12.0",
         &Debug::cuda_driver,
         "libmegjit_card.so"},
        {"NVRTC",
         "pip install nvidia-cuda-nvrtc",
         {"libnvrtc.so.13", "libnvrtc.so.12"},
         {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"},
         nvrtc_version,
         cuda_of_nvrtc,
         12000,
         "12.0",
         &Debug::nvrtc},
        {"cuDNN",
         "pip install nvidia-cudnn-cu13",
         {"libcudnn.so.9"},
         {"nvidia/cudnn/lib", "nvidia/cudnn_jit/lib"},
         cudnn_version,
         cuda_of_cudnn,
         91100,
         "9.11",
         &Debug::cudnn,
         "libmegjit_card_cudnn.so"},
        {"cuBLASLt",
         "pip install nvidia-cublas",
         {"libcublasLt.so.13", "libcublasLt.so.12"},
         {"nvidia/cu13/lib", "nvidia/cublas/lib"},
         cublaslt_version,
         cuda_of_cublaslt,
         120000,
         "12.0",
         &Debug::cublaslt,
         "libmegjit_card_cublaslt.so"},
        {"NCCL",
         "pip install nvidia-nccl-cu13",
         {"libnccl.so.2"},
         {"nvidia/nccl/lib"},
         nccl_version,
         of_any_cuda,
         21800,
         "2.18",
         &Debug::nccl},
    }};
    return table[static_cast<size_t>(library)];
}

std::vector<fs::path> toolkits() {
    std::vector<fs::path> found;
    std::error_code ignored;
    for (fs::directory_iterator it("/usr/local", ignored), end; !ignored && it != end;
         it.increment(ignored))
        if (it->path().filename().string().starts_with("cuda"))
            found.push_back(it->path() / "lib64");
    std::sort(found.rbegin(), found.rend());
    return found;
}

std::string path_of(void* library, const fs::path& asked) {
    link_map* map = nullptr;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !map || !*map->l_name) return asked.string();
    return map->l_name;
}

// Fills `found`, or its why_not. A driver runs libraries built for its own major version of CUDA,
// or for an older one.
void open_one(const LibraryRow& entry, const fs::path& path, const FoundLibrary* driver,
              FoundLibrary& found) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char* error = dlerror();
        if (std::error_code ignored; fs::exists(path, ignored)) found.why_not = error;
        return;
    }
    const std::string where = path_of(library, path);
    try {
        const Version version = entry.version(library);
        if (version.number < entry.oldest)
            throw DeviceError(
                cat("version ", version.text, " is too old, ", entry.oldest_text, " is needed"));
        const int cuda = entry.cuda(library, version);
        if (driver && *driver && cuda > driver->version / 1000)
            throw DeviceError(cat("it is of CUDA ", cuda, ", the driver of CUDA ",
                                  driver->version_text, "; pip install 'megjit[cuda",
                                  driver->version / 1000, "]'"));
        found = {library, where, version.number, version.text, {}};
    } catch (const DeviceError& error) { found.why_not = cat(where, ": ", error.what()); }
}

}  // namespace

std::string_view name_of(Library library) { return entry(library).name; }

void* FoundLibrary::address_of(const char* symbol) const {
    void* address = dlsym(handle, symbol);
    if (!address) throw DeviceError(cat(path, " lacks ", symbol));
    return address;
}

static bool is_emulated(Library library) {
    const LibraryRow& known = entry(library);
    return debug().emulated_gpus > 0 && !known.emulated.empty() &&
           (debug().*known.variable).empty();
}

std::vector<fs::path> candidates_of(Library library) {
    const LibraryRow& known = entry(library);
    if (const std::string& named = debug().*known.variable; !named.empty()) return {named};
    if (is_emulated(library)) return {plugin_folder() / known.emulated};
    const fs::path packages = package_folder().parent_path();  // packages beside ours
    std::vector<fs::path> paths;
    for (const std::string& file : known.files) {
        paths.emplace_back(file);
        for (const std::string& wheel : known.wheels) paths.push_back(packages / wheel / file);
    }
    for (const fs::path& toolkit : toolkits())
        for (const std::string& file : known.files) paths.push_back(toolkit / file);
    return paths;
}

FoundLibrary open_library(Library library, std::span<const fs::path> candidates) {
    const FoundLibrary* driver =
        library == Library::driver ? nullptr : &find_library(Library::driver);
    FoundLibrary found;
    for (const fs::path& path : candidates) {
        open_one(entry(library), path, driver, found);
        if (found) return found;
    }
    if (found.why_not.empty())
        found.why_not = cat(
            "no ", candidates.size() == 1 ? candidates[0].string() : entry(library).files[0],
            " was found; ", is_emulated(library) ? "`make card` builds it" : entry(library).fix);
    return found;
}

const FoundLibrary& find_library(Library library) {
    static std::array<std::once_flag, std::size(kNvidiaLibraries)> once;
    static std::array<FoundLibrary, std::size(kNvidiaLibraries)> found;
    const auto at = static_cast<size_t>(library);
    if (library == Library::cudnn) find_library(Library::nvrtc);  // cuDNN needs it
    std::call_once(once[at], [&] { found[at] = open_library(library, candidates_of(library)); });
    return found[at];
}

}  // namespace megjit::runtime
