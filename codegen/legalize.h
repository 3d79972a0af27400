// codegen/legalize.h -- the scalar code of a kernel in instructions that every target has, so that
// no emitter knows what an operation of ours means: it prints.
//
// Of a legal kernel
// * operands are f32, f16 or integers; bfloat16 and bool are their bits (u16 and u8), which the
//   program takes apart and puts together;
// * instructions are: input, constant, select; add, sub, mul on f32 and i32; div, mod (C's fmod),
//   neg, abs, fma, sqrt, floor, ceil, trunc, round_even on f32; max and min on i32; bit_and,
//   bit_or, bit_xor on i32 and b1; shifts by less than 32; lt, le, eq, ne on f32 and i32; casts;
//   narrow to f16;
// * div on i32 rounds towards minus infinity, and its divisor is neither 0 nor -1;
// * f32_to_i32 takes what an i32 can hold, but where the target has it for all (NativeOps);
// * reductions are of f32 and i32.
// No instruction may be contracted, reordered or assumed away (NaN, infinity, -0, denormals).
#pragma once

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

// What a target has besides, as one instruction.
struct NativeOps {
    bool f32_to_i32 = false;  // of any f32, as scalar.h says
};
constexpr NativeOps kX86Ops = {.f32_to_i32 = true};

// The same bits (NaN for NaN) by legal instructions, for what stores narrowed values as KernelIR
// says. Itself when it is legal.
KernelIR legalize(const KernelIR& kernel, NativeOps native = {});

// What is not legal; "" if nothing is. Of a kernel that is sound.
std::string illegal_in(const KernelIR& kernel, NativeOps native = {});

}  // namespace megjit::codegen
