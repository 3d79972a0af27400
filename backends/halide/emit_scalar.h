// backends/halide/emit_scalar.h -- one legal scalar instruction (codegen/legalize.h) over any
// number of lanes, as a Halide expression. Nothing is contracted, reordered or simplified: lanes
// hold the bits that the interpreter computes.
#pragma once

#include <Halide.h>

#include <span>

#include "runtime/scalar.h"

namespace megjit::halide_backend {

Halide::Type type_of(runtime::ScalarType type, int lanes);
// Memory is read and written as f32, i32, u16 or u8.
Halide::Type storage_type(runtime::DType dtype, int lanes);

Halide::Expr constant(runtime::ScalarType type, uint32_t bits, int lanes = 1);
// `value` in every lane; itself when it has that many.
Halide::Expr spread(const Halide::Expr& value, int lanes);
Halide::Expr widen(runtime::DType dtype,
                   const Halide::Expr& stored);  // from memory to the compute type
Halide::Expr shorten(runtime::DType dtype, const Halide::Expr& value);  // and back

// `value`, an f32, in a way that LLVM cannot look through; `opaque_zero` is an i32 that it cannot
// know.
Halide::Expr fenced(const Halide::Expr& value, const Halide::Expr& opaque_zero);
// Of two values of one type.
Halide::Expr apply(runtime::ScalarOp op, const Halide::Expr& a, const Halide::Expr& b);
// `v` holds the values of inst.args, all of the same number of lanes.
Halide::Expr emit(const runtime::ScalarInst& inst, std::span<const Halide::Expr> v);

}  // namespace megjit::halide_backend
