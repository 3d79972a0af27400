#include "backends/halide/gpu_compiler.h"

#include <algorithm>
#include <bit>

#include "backends/halide/abi.h"
#include "runtime/error.h"

namespace megjit::halide_backend {
namespace {

using codegen::KernelIR;
using codegen::Lanes;
using codegen::LaunchShape;
using runtime::cat;
using runtime::DeviceError;

// How threads share a kernel; see Team in emit_gpu.h.
struct Plan {
    int columns = 1, parts = 256;
};

// A thread should have four elements of a row to itself; short rows get fewer threads.
Plan plan_of(const KernelIR& kernel, const LaunchShape& launch) {
    if (kernel.reduced == 0) return {};
    const auto wanted =
        static_cast<uint64_t>(std::clamp<int64_t>(launch.extents.back() / 4, 1, 256));
    const int parts = static_cast<int>(std::bit_floor(wanted));
    if (kernel.lanes == Lanes::last) return {.columns = 1, .parts = std::max(parts, 32)};
    return {.columns = 32, .parts = std::min(parts, 8)};
}

// A reduction merges the lanes of its threads through memory of its own: two f64 at most (sum and
// squares).
uint32_t shared_bytes(const KernelIR& kernel, const Plan& plan) {
    return static_cast<uint32_t>(2 * sizeof(double) * kernel.reductions.size()) *
           static_cast<uint32_t>(plan.columns * plan.parts);
}

}  // namespace

std::string HalideGpuCompiler::variant(const KernelIR& kernel, const LaunchShape& launch) const {
    const Plan plan = plan_of(kernel, launch);
    return cat("columns=", plan.columns, " parts=", plan.parts);
}

std::string HalideGpuCompiler::source(const KernelIR& kernel, const LaunchShape& launch,
                                      codegen::CodeTarget target) {
    const int arch = target.gpu_arch;
    if (arch < 80)
        throw DeviceError(cat("HALIDE: its kernels need a GPU of compute capability 8.0, not ",
                              arch / 10, ".", arch % 10));
    const Plan plan = plan_of(kernel, launch);
    const std::string text = print(kernel);
    std::string result;
    const auto append = [](void* to, const char* data, size_t bytes) {
        static_cast<std::string*>(to)->append(data, bytes);
    };
    const auto to_ptx = reinterpret_cast<decltype(&megjit_halide_ptx)>(host_.function("_ptx"));
    if (to_ptx(text.data(), text.size(), plan.columns, plan.parts, append, &result) != 0)
        throw DeviceError(cat("HALIDE: cannot compile a kernel for a GPU: ", result, "\n", text));
    return result;
}

codegen::GpuImage HalideGpuCompiler::compile(const KernelIR& kernel, const LaunchShape& launch,
                                             codegen::CodeTarget target) {
    const Plan plan = plan_of(kernel, launch);
    codegen::GpuImage image;
    image.code = source(kernel, launch, target);
    image.is_ptx = true;
    image.cover = kernel.reduced == 0           ? codegen::Cover::elements
                  : kernel.lanes == Lanes::last ? codegen::Cover::rows
                                                : codegen::Cover::columns;
    image.per_block = kernel.reduced == 0 ? plan.parts : plan.columns;
    image.block[0] = static_cast<uint32_t>(plan.columns * plan.parts);
    image.shared_bytes = shared_bytes(kernel, plan);
    image.alignment = 1;  // elements are read one by one
    return image;
}

}  // namespace megjit::halide_backend
