// backends/nvrtc/ -- kernels for NVIDIA GPUs: CUDA C++ as text, compiled in the process by NVRTC.
// In: a legal KernelIR and a launch. Out: a GpuImage that serves every launch of the same plan.
// Needs no CUDA to build: NVRTC is opened at run time. Knows no driver.
//
// backends/nvrtc/compiler.h -- NvrtcCompiler: plan, text, NVRTC, image.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "codegen/compiler.h"
#include "codegen/gpu_plan.h"
#include "runtime/host/mutex.h"

namespace megjit::nvrtc {

class Library;

class NvrtcCompiler final : public codegen::GpuCompiler {
public:
    NvrtcCompiler();
    explicit NvrtcCompiler(std::vector<std::filesystem::path> candidates);
    ~NvrtcCompiler() override;

    std::string_view name() const override { return "NVRTC"; }
    std::string missing() const override;
    std::string version_key() const override;
    std::string variant(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                        codegen::CodeTarget target) const override;
    // Makes a CUBIN; for a GPU that is newer than NVRTC, PTX of the newest architecture that NVRTC
    // knows.
    codegen::GpuImage compile(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                              codegen::CodeTarget target) override;
    std::string source(const codegen::KernelIR& kernel, const codegen::LaunchShape& launch,
                       codegen::CodeTarget target) override;
    bool compiles_cuda() const override { return true; }
    std::string compile_cuda(const std::string& text, codegen::CodeTarget target) override;

private:
    int arch_for(int arch) const;
    const Library& library() const;  // opened at the first use

    std::vector<std::filesystem::path> candidates_;
    mutable runtime::Mutex mutex_{"NVRTC", runtime::Rank::inner};
    mutable std::unique_ptr<Library> library_;
};

}  // namespace megjit::nvrtc
