// The C ABI of libmegjit_halide.so.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <sstream>
#include <string_view>

#include "backends/halide/abi.h"
#include "backends/halide/emit.h"
#include "codegen/legalize.h"
#include "runtime/host/error.h"
#include "runtime/host/isa.h"

namespace megjit::halide_backend { namespace {

std::atomic<int> bound{static_cast<int>(runtime::kHighest)};

// The CPU of this machine, or below its level the plain x86-64 of that level.
Halide::Target cpu_target() {
    using enum Halide::Target::Feature;
    Halide::Target host = Halide::get_host_target();
    const auto isa = std::min(static_cast<runtime::Isa>(bound.load()), runtime::machine_isa());
    // Halide infers AVX-512 from the CPU's model, which a virtual machine may hide.
    const bool is_sure = runtime::has_avx512(isa) || !host.has_feature(AVX512);
    if (isa >= runtime::machine_isa() && is_sure) return host;
    host = Halide::Target(host.os, host.arch, host.bits, {SSE41, AVX, AVX2, FMA, F16C});
    if (runtime::has_avx512(isa))
        for (const auto feature : {AVX512, AVX512_Skylake}) host.set_feature(feature);
    return host;
}

// Halide's runtime is not linked: kernels allocate nothing, start no threads and check nothing.
const Halide::Target& host() {
    static const Halide::Target target = [] {
        using enum Halide::Target::Feature;
        Halide::Target host = cpu_target();
        for (const auto feature : {NoRuntime, NoAsserts, NoBoundsQuery, StrictFloat})
            host.set_feature(feature);
        // Tuning for one CPU may prefer half-wide vectors, into which LLVM would split ours.
        host.processor_tune = Halide::Target::ProcessorGeneric;
        return host;
    }();
    return target;
}

codegen::KernelIR kernel_of(std::string_view text) {
    codegen::KernelIR kernel = codegen::parse_kernel(text);
    if (const std::string fault = fault_of(kernel); !fault.empty())
        throw runtime::InternalError("unsound kernel: " + fault);
    if (const std::string what = illegal_in(kernel); !what.empty())
        throw runtime::InternalError("not legal: " + what);
    return kernel;
}

Halide::Module module_of(std::string_view text) {
    Halide::Module module("megjit", host());
    module.set_any_strict_float(true);
    module.append(emit(kernel_of(text), host().natural_vector_size(Halide::Float(32))));
    return module;
}

std::string object_of(std::string_view text) {
    const Halide::Buffer<uint8_t> object = module_of(text).compile_to_buffer();
    return {reinterpret_cast<const char*>(object.data()), object.size_in_bytes()};
}

std::string source_of(std::string_view text) {
    std::ostringstream out;
    out << module_of(text);
    return out.str();
}

// sm_80 is the second newest architecture that Halide knows; drivers compile its PTX for all later
// ones.
std::string ptx_of(std::string_view text, const codegen::GpuPlan& plan) {
    using enum Halide::Target::Feature;
    const auto generator = Halide::Internal::new_CodeGen_PTX_Dev(
        host().with_feature(CUDA).with_feature(CUDACapability80));
    GpuKernel kernel = emit_gpu(kernel_of(text), plan);
    generator->init_module();
    generator->add_kernel(kernel.body, kKernelSymbol, kernel.arguments);
    const std::vector<char> ptx = generator->compile_to_src();
    return {ptx.data(), strnlen(ptx.data(), ptx.size())};
}

// Runs `make` and hands its text to the sink; an exception becomes its message and status 1. One
// kernel at a time: Halide's use of LLVM has global state.
template <class Make>
int answer(megjit_halide_sink sink, void* to, const Make& make) noexcept {
    static std::mutex mutex;
    const auto failed = [&](std::string_view why) {
        sink(to, why.data(), why.size());
        return 1;
    };
    try {
        const std::lock_guard lock(mutex);
        const std::string result = make();
        sink(to, result.data(), result.size());
        return 0;
    } catch (const Halide::Error& error) {  // it is no std::exception
        return failed(error.what());
    } catch (const std::exception& error) { return failed(error.what()); }
}

}}  // namespace megjit::halide_backend

#define MEGJIT_EXPORT __attribute__((visibility("default")))
using namespace megjit::halide_backend;

extern "C" {

MEGJIT_EXPORT int megjit_halide_abi(void) { return kMegjitHalideAbi; }

MEGJIT_EXPORT void megjit_halide_bound(int isa) { bound = isa; }

MEGJIT_EXPORT void megjit_halide_version(megjit_halide_sink sink, void* to) {
    answer(sink, to, [] {
        return megjit::runtime::cat("Halide ", HALIDE_VERSION_MAJOR, ".", HALIDE_VERSION_MINOR, ".",
                                    HALIDE_VERSION_PATCH, " ", host().to_string());
    });
}

MEGJIT_EXPORT int megjit_halide_compile(const char* kernel, size_t bytes, megjit_halide_sink sink,
                                        void* to) {
    return answer(sink, to, [&] { return object_of({kernel, bytes}); });
}

MEGJIT_EXPORT int megjit_halide_source(const char* kernel, size_t bytes, megjit_halide_sink sink,
                                       void* to) {
    return answer(sink, to, [&] { return source_of({kernel, bytes}); });
}

MEGJIT_EXPORT int megjit_halide_ptx(const char* kernel, size_t bytes, const megjit_halide_gpu* gpu,
                                    megjit_halide_sink sink, void* to) {
    return answer(sink, to, [&] {
        return ptx_of({kernel, bytes}, {.cover = static_cast<megjit::codegen::Cover>(gpu->cover),
                                        .wide = true,
                                        .threads = gpu->threads,
                                        .team = gpu->team,
                                        .tile = gpu->tile,
                                        .rows_lie_along_sum = gpu->rows_lie_along_sum != 0});
    });
}

}  // extern "C"
