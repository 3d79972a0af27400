// backends/nvrtc/library.h -- libnvrtc, opened at run time, with prototypes of our own.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/host/nvidia_libraries.h"

namespace megjit::nvrtc {

class Library {
public:
    explicit Library(const std::vector<std::filesystem::path>& candidates);

    bool found() const { return functions_ != nullptr; }
    const std::string& why_not() const { return library_.why_not; }
    const std::string& version() const { return library_.version_text; }  // "13.0"
    const std::vector<int>& archs() const { return archs_; }  // in ascending order, as 90

    // Compiles CUDA C++. DeviceError with the compiler's log. `target` is sm_90 for a CUBIN,
    // compute_90 for PTX.
    std::string compile(const std::string& text, const std::string& target) const;

private:
    struct Functions;

    runtime::FoundLibrary library_;
    std::shared_ptr<const Functions> functions_;
    std::vector<int> archs_;
};

}  // namespace megjit::nvrtc
