#include "codegen/host_cpu.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstring>
#include <fstream>

#include "runtime/host/error.h"
#include "runtime/host/isa.h"

namespace megjit::codegen {
namespace {

#define MEGJIT_V3 "x86-64 sse4.2 popcnt lzcnt movbe bmi bmi2 f16c fma avx avx2"
#define MEGJIT_V4 MEGJIT_V3 " avx512f avx512cd avx512vl avx512bw avx512dq"

std::string detect() {
#ifdef __x86_64__
    if (runtime::isa() < runtime::machine_isa())
        return runtime::has_avx512() ? MEGJIT_V4 : MEGJIT_V3;
    std::string found = "x86-64";
#define MEGJIT_FEATURE(name) \
    if (__builtin_cpu_supports(name)) found += " " name;
    MEGJIT_FEATURE("sse4.2")
    MEGJIT_FEATURE("sse4a")
    MEGJIT_FEATURE("popcnt")
    MEGJIT_FEATURE("lzcnt")
    MEGJIT_FEATURE("movbe")
    MEGJIT_FEATURE("bmi")
    MEGJIT_FEATURE("bmi2")
    MEGJIT_FEATURE("adx")
    MEGJIT_FEATURE("aes")
    MEGJIT_FEATURE("sha")
    MEGJIT_FEATURE("pclmul")
    MEGJIT_FEATURE("f16c")
    MEGJIT_FEATURE("fma")
    MEGJIT_FEATURE("fma4")
    MEGJIT_FEATURE("xop")
    MEGJIT_FEATURE("tbm")
    MEGJIT_FEATURE("avx")
    MEGJIT_FEATURE("avx2")
    MEGJIT_FEATURE("avxvnni")
    MEGJIT_FEATURE("gfni")
    MEGJIT_FEATURE("vaes")
    MEGJIT_FEATURE("vpclmulqdq")
    MEGJIT_FEATURE("avx512f")
    MEGJIT_FEATURE("avx512cd")
    MEGJIT_FEATURE("avx512vl")
    MEGJIT_FEATURE("avx512bw")
    MEGJIT_FEATURE("avx512dq")
    MEGJIT_FEATURE("avx512vbmi")
    MEGJIT_FEATURE("avx512ifma")
    MEGJIT_FEATURE("avx512vpopcntdq")
    MEGJIT_FEATURE("avx512vbmi2")
    MEGJIT_FEATURE("avx512vnni")
    MEGJIT_FEATURE("avx512bitalg")
    MEGJIT_FEATURE("avx512bf16")
    MEGJIT_FEATURE("avx512fp16")
    MEGJIT_FEATURE("avx512vp2intersect")
    MEGJIT_FEATURE("amx-tile")
    MEGJIT_FEATURE("amx-int8")
    MEGJIT_FEATURE("amx-bf16")
#undef MEGJIT_FEATURE
    return found;
#elif defined(__aarch64__)
    std::string found = "aarch64";
    for (auto i = runtime::Isa::neon; i <= runtime::isa();
         i = runtime::Isa(static_cast<int>(i) + 1))
        found += runtime::cat(" ", runtime::name_of(i));
    return found;
#endif
}

std::string detect_model() {
    std::string found;
#ifdef __x86_64__
    unsigned a = 0, words[3] = {}, unused = 0;
    const auto append = [&](const unsigned* from, size_t count) {
        char text[16] = {};
        std::memcpy(text, from, count * sizeof(unsigned));
        found.append(text, strnlen(text, count * sizeof(unsigned)));
    };
    if (__get_cpuid(0, &a, &words[0], &words[2], &words[1])) append(words, 3);
    if (__get_cpuid(1, &a, &unused, &unused, &unused)) found += " " + std::to_string(a >> 4) + " ";
    for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf)
        if (unsigned brand[4]; __get_cpuid(leaf, &brand[0], &brand[1], &brand[2], &brand[3]))
            append(brand, 4);
#elif defined(__aarch64__)
    // Implementer, part and revision.
    std::ifstream("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1") >> found;
#endif
    return found;
}

}  // namespace

const std::string& cpu_model() {
    static const std::string model = detect_model();
    return model;
}

const std::string& host_features() {
    static const std::string features = detect();
    return features;
}

bool runs_here(std::string_view features) {
    const std::string here = " " + host_features() + " ";
    while (!features.empty()) {
        const size_t end = std::min(features.find(' '), features.size());
        if (here.find(" " + std::string(features.substr(0, end)) + " ") == std::string::npos)
            return false;
        features.remove_prefix(std::min(end + 1, features.size()));
    }
    return true;
}

}  // namespace megjit::codegen
