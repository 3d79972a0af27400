#include "runtime/host/isa.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include <sys/auxv.h>

#include "runtime/host/debug.h"
#include "runtime/host/error.h"

namespace megjit::runtime {
namespace {

constexpr std::string_view kLevelNames[] = {"avx2",    "avx512", "avx512_vnni", "amx", "neon",
                                            "dotprod", "i8mm",   "bf16",        "sve2"};

#if defined(__x86_64__)
Isa detect() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) {
        if (!__builtin_cpu_supports("avx512vnni")) return Isa::avx512;
        return __builtin_cpu_supports("amx-int8") && __builtin_cpu_supports("amx-bf16")
                   ? Isa::amx
                   : Isa::avx512_vnni;
    }
    if (__builtin_cpu_supports("x86-64-v3")) return Isa::avx2;
    user_error({.what = "this processor has no AVX2",
                .why = "megjit's kernels need x86-64-v3: AVX2, FMA, F16C and BMI2",
                .fix = "run on a machine of 2013 (Intel Haswell, AMD Excavator) or later"},
               ErrorKind::runtime);
}
#elif defined(__aarch64__)
// The kernel's word, not /proc/cpuinfo, which an emulator does not replace.
Isa detect() { return arm_level({getauxval(AT_HWCAP), getauxval(AT_HWCAP2)}); }
#else
#error "megjit has kernels for x86-64 and AArch64"
#endif

std::string levels_up_to(Isa last) {
    std::string text;
    const Isa first = is_arm(last) ? Isa::neon : Isa::avx2;
    for (auto i = static_cast<size_t>(first); i <= static_cast<size_t>(last); ++i)
        text += (text.empty() ? "" : ", ") + std::string(kLevelNames[i]);
    return text;
}

}  // namespace

std::string_view name_of(Isa isa) { return kLevelNames[static_cast<size_t>(isa)]; }

ArmBits arm_bits(Isa level) {
    // The bits of Linux's asm/hwcap.h for AArch64, which other architectures do not have.
    constexpr uint64_t kAtomics = 1 << 8, kHalves = 1 << 10, kDotProd = 1 << 20;  // of AT_HWCAP
    constexpr uint64_t kSve2 = 1 << 1, kI8mm = 1 << 13, kBf16 = 1 << 14;  // of AT_HWCAP2
    ArmBits needed;
    if (level >= Isa::dotprod) needed.hwcap |= kAtomics | kHalves | kDotProd;
    if (level >= Isa::i8mm) needed.hwcap2 |= kI8mm;
    if (level >= Isa::bf16) needed.hwcap2 |= kBf16;
    if (level >= Isa::sve2) needed.hwcap2 |= kSve2;
    return needed;
}

Isa arm_level(const ArmBits& has) {
    const auto has_level = [&](Isa level) {
        const ArmBits needed = arm_bits(level);
        return !(needed.hwcap & ~has.hwcap) && !(needed.hwcap2 & ~has.hwcap2);
    };
    Isa level = Isa::neon;
    while (level < Isa::sve2) {
        const Isa next = static_cast<Isa>(static_cast<int>(level) + 1);
        if (!has_level(next)) break;
        level = next;
    }
    return level;
}

Isa machine_isa() {
    static const Isa level = detect();
    return level;
}

std::optional<Isa> isa_named(std::string_view name) {
    const auto found = std::find(std::begin(kLevelNames), std::end(kLevelNames), name);
    if (found == std::end(kLevelNames)) return std::nullopt;
    return static_cast<Isa>(found - std::begin(kLevelNames));
}

Isa bounded_isa(std::string_view wanted, Isa machine) {
    if (wanted.empty()) return machine;
    const std::optional<Isa> level = isa_named(wanted);
    if (!level)
        user_error({.what = cat("MEGJIT_ISA: there is no level ", wanted),
                    .fix = cat("set it to one that this machine has: ", levels_up_to(machine))});
    if (*level > machine || is_arm(*level) != is_arm(machine))
        user_error({.what = cat("MEGJIT_ISA: this machine has no ", wanted),
                    .fix = cat("set it to one that it has: ", levels_up_to(machine))});
    return *level;
}

Isa isa() {
    static const Isa level = bounded_isa(debug().isa, machine_isa());
    return level;
}

}  // namespace megjit::runtime
