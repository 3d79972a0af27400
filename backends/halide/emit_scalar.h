// backends/halide/emit_scalar.h -- arithmetic of codegen's loops over any number of lanes, as a
// Halide expression. Nothing is contracted, reordered or simplified: lanes hold the bits that the
// interpreter computes.
#pragma once

#include <Halide.h>

#include <span>

#include "codegen/loops/loops.h"

namespace megjit::halide_backend {

Halide::Type type_of(codegen::loops::Type type);
Halide::Type memory_type(codegen::loops::Kind kind, int lanes);  // booleans are bytes in memory

Halide::Expr constant(codegen::loops::Type type, uint64_t bits);
Halide::Expr widen(runtime::DType dtype,
                   const Halide::Expr& stored);  // converts a value from memory to its compute type
Halide::Expr shorten(runtime::DType dtype, const Halide::Expr& value);  // converts it back
Halide::Expr convert(const Halide::Type& to, const Halide::Expr& value);  // `to` may be bool
// Hides the real number `value` from LLVM's optimizations; LLVM cannot know the i32 `opaque_zero`.
Halide::Expr fenced(const Halide::Expr& value, const Halide::Expr& opaque_zero);
Halide::Expr compute(runtime::ScalarOp op, codegen::loops::Kind kind,
                     std::span<const Halide::Expr> v);

}  // namespace megjit::halide_backend
