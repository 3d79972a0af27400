// runtime/host/nvidia_libraries.h -- NVIDIA's libraries, opened at run time: where each may lie,
// which one was found, its version, or why there is none. None of our libraries is linked with
// them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megjit::runtime {

enum class NvidiaLibrary : uint8_t { driver, nvrtc, cudnn, cublaslt, nccl };
inline constexpr NvidiaLibrary kNvidiaLibraries[] = {NvidiaLibrary::driver, NvidiaLibrary::nvrtc,
                                                     NvidiaLibrary::cudnn, NvidiaLibrary::cublaslt,
                                                     NvidiaLibrary::nccl};
std::string_view name_of(NvidiaLibrary library);  // "cuDNN"

struct FoundLibrary {
    void* handle = nullptr;  // null where no library was found; never closed
    std::string path = {};
    int version = 0;  // in the library's own form: 13000 is CUDA 13.0, 92700 is cuDNN 9.27.0
    std::string version_text = {};  // "9.27.0"
    std::string why_not = {};  // one line, where no library was found
    explicit operator bool() const { return handle != nullptr; }

    // A function of the library; DeviceError where the library lacks it.
    template <class Fn>
    void function(const char* symbol, Fn& fn) const {
        fn = reinterpret_cast<Fn>(address_of(symbol));
    }

private:
    void* address_of(const char* symbol) const;
};

// The path in the library's own variable (runtime/host/debug.h) alone, where that is set. Else what
// the loader finds, the wheels beside our package, and the toolkits under /usr/local; newest first.
// Emulated GPUs have a driver, a cuDNN and a cuBLASLt of their own, which are installed with us.
std::vector<std::filesystem::path> candidates_of(NvidiaLibrary library);

// The first candidate that opens, is new enough, and of no later major version of CUDA than the
// driver, if there is one.
FoundLibrary open_library(NvidiaLibrary library, std::span<const std::filesystem::path> candidates);

// Returns this process's library. The first call opens it, where its variable says at that time.
const FoundLibrary& find_library(NvidiaLibrary library);

// An object made from the library, once for this process. Null, with the reason, where there is
// none.
template <class Made>
const Made* made_of(NvidiaLibrary library, std::string* why_not) {
    const FoundLibrary& found = find_library(library);
    if (!found) {
        *why_not = found.why_not;
        return nullptr;
    }
    static const Made made(found);
    return &made;
}

}  // namespace megjit::runtime
