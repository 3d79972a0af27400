// codegen/legalize.h -- the scalar code of a kernel in instructions that every target has, so that
// emitters need not know what our operations mean: they only print.
//
// In a legal kernel
// * operands are f32, f16 or integers; bfloat16 and bool are read as their bits (u16 and u8), which
//   the program converts;
// * instructions are: input, constant, select; add, sub, mul on numbers; div, mod (C's fmod), neg,
//   abs, fma, sqrt, floor, ceil, trunc, round_even on reals; max and min on integers; bit_and,
//   bit_or, bit_xor on integers and b1; shifts by less than the bits; lt, le, eq, ne on numbers;
//   casts; narrow to f16; div and mod on i64;
// * div on i32 rounds towards minus infinity, and its divisor is neither 0 nor -1;
// * a cast of a real to an integer takes only numbers that the integer can hold, unless the target
//   can cast all (NativeOps);
// * reductions take numbers.
// No instruction may be contracted, reordered or assumed away (NaN, infinity, -0, denormals).
#pragma once

#include "codegen/kernel_ir.h"
#include "runtime/host/isa.h"

namespace megjit::codegen {

// What a target can compute by one instruction beyond the legal ones.
struct NativeOps {
    bool f32_to_i32 = false;  // a cast of any f32 to i32, as scalar.h says
};
constexpr NativeOps kAllNative = {.f32_to_i32 = true};
// What MLIR's back-end has for CPUs of that level. (Arm's instruction gives other numbers out of
// range.)
constexpr NativeOps native_ops(runtime::Isa isa) { return {.f32_to_i32 = !runtime::is_arm(isa)}; }

// Returns a kernel of legal instructions with the same bits (any NaN for a NaN), if stored values
// are already narrowed as KernelIR says. Returns the kernel itself when it is legal.
KernelIR legalize(const KernelIR& kernel, NativeOps native = {});

// Names what is not legal in a sound kernel; "" if nothing is.
std::string illegal_in(const KernelIR& kernel, NativeOps native = {});

}  // namespace megjit::codegen
