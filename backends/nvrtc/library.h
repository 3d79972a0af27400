// backends/nvrtc/library.h -- libnvrtc, opened at run time, with prototypes of our own.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace megjit::nvrtc {

class Library {
public:
    // MEGJIT_NVRTC when that is set. Else what the loader finds, the nvidia-cuda-nvrtc package
    // beside ours, and the toolkits under /usr/local; newest first.
    static std::vector<std::filesystem::path> candidates();
    explicit Library(const std::vector<std::filesystem::path>& candidates);

    bool found() const { return handle_ != nullptr; }
    const std::string& why_not() const { return why_not_; }
    const std::string& version() const { return version_; }  // "13.0"
    const std::vector<int>& archs() const { return archs_; }  // ascending, as 90

    // DeviceError with the compiler's log. `target` is sm_90 for a CUBIN, compute_90 for PTX.
    std::string compile(const std::string& text, const std::string& target) const;

private:
    struct Functions;
    void open(const std::filesystem::path& path);

    void* handle_ = nullptr;  // never closed
    std::shared_ptr<const Functions> functions_;
    std::string why_not_, version_;
    std::vector<int> archs_;
};

}  // namespace megjit::nvrtc
