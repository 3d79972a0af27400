// codegen/callable_functions.h -- the functions that generated code may call where the CPU has no
// instruction; a kernel sees nothing else.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>

#if defined(__x86_64__)  // Arm converts halves by an instruction at every level
extern "C" {
float __extendhfsf2(uint16_t);
uint16_t __truncsfhf2(float);
}
#endif

namespace megjit::codegen {

inline const std::map<std::string_view, void*>& callable_functions() {
    using Unary = float (*)(float);
    using Double = double (*)(double);
    const auto address = [](auto* function) { return reinterpret_cast<void*>(function); };
    static const std::map<std::string_view, void*> known = {
        {"fmodf", address(static_cast<float (*)(float, float)>(std::fmod))},
        {"fmaf", address(static_cast<float (*)(float, float, float)>(std::fma))},
        {"sqrtf", address(static_cast<Unary>(std::sqrt))},
        {"floorf", address(static_cast<Unary>(std::floor))},
        {"ceilf", address(static_cast<Unary>(std::ceil))},
        {"truncf", address(static_cast<Unary>(std::trunc))},
        {"roundevenf",
         address(static_cast<Unary>(std::nearbyint))},  // the same in the default rounding mode
        {"fmod", address(static_cast<double (*)(double, double)>(std::fmod))},
        {"fma", address(static_cast<double (*)(double, double, double)>(std::fma))},
        {"sqrt", address(static_cast<Double>(std::sqrt))},
        {"floor", address(static_cast<Double>(std::floor))},
        {"ceil", address(static_cast<Double>(std::ceil))},
        {"trunc", address(static_cast<Double>(std::trunc))},
        {"roundeven", address(static_cast<Double>(std::nearbyint))},
        {"memcpy", address(&std::memcpy)},
        {"memset", address(&std::memset)},
#if defined(__x86_64__)
        {"__extendhfsf2", address(&__extendhfsf2)},
        {"__truncsfhf2", address(&__truncsfhf2)},
#endif
    };
    return known;
}

}  // namespace megjit::codegen
