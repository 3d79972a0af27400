#include "runtime/host/isa.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "runtime/host/debug.h"
#include "runtime/host/error.h"

namespace megjit::runtime {
namespace {

constexpr std::string_view kLevelNames[] = {"avx2", "avx512", "avx512_vnni", "amx"};

Isa detect() {
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) {
        if (!__builtin_cpu_supports("avx512vnni")) return Isa::avx512;
        return __builtin_cpu_supports("amx-int8") && __builtin_cpu_supports("amx-bf16")
                   ? Isa::amx
                   : Isa::avx512_vnni;
    }
    if (__builtin_cpu_supports("x86-64-v3")) return Isa::avx2;
#endif
    user_error({.what = "this processor has no AVX2",
                .why = "megjit's kernels need x86-64-v3: AVX2, FMA, F16C and BMI2",
                .fix = "run on a machine of 2013 (Intel Haswell, AMD Excavator) or later"},
               ErrorKind::runtime);
}

std::string levels_up_to(Isa last) {
    std::string text;
    for (size_t i = 0; i <= static_cast<size_t>(last); ++i)
        text += (i ? ", " : "") + std::string(kLevelNames[i]);
    return text;
}

}  // namespace

std::string_view name_of(Isa isa) { return kLevelNames[static_cast<size_t>(isa)]; }

Isa machine_isa() {
    static const Isa level = detect();
    return level;
}

Isa bounded_isa(std::string_view wanted, Isa machine) {
    if (wanted.empty()) return machine;
    const auto found = std::find(std::begin(kLevelNames), std::end(kLevelNames), wanted);
    if (found == std::end(kLevelNames))
        user_error({.what = cat("MEGJIT_ISA: there is no level ", wanted),
                    .fix = cat("set it to one that this machine has: ", levels_up_to(machine))});
    const auto level = static_cast<Isa>(found - std::begin(kLevelNames));
    if (level > machine)
        user_error({.what = cat("MEGJIT_ISA: this machine has no ", wanted),
                    .fix = cat("set it to one that it has: ", levels_up_to(machine))});
    return level;
}

Isa isa() {
    static const Isa level = bounded_isa(debug().isa, machine_isa());
    return level;
}

}  // namespace megjit::runtime
