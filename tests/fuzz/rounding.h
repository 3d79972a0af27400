// tests/fuzz/rounding.h -- how far the results of an op may be off when its operands are, and when
// its additions are made in another order: measured by running it again on operands that are moved
// a little.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "jit/step/graph.h"

namespace megjit::fuzz {

// A result that is off by no more is a zero of the other sign, or nothing.
constexpr double kSignOfZero = 0x1p-1000;

// May level 3 compute the op's results with other bits than the eager kernels do?
bool may_round_otherwise(const jit::Graph& graph, const runtime::OpDef& op,
                         std::span<const jit::ValueId> inputs, const runtime::Type& result);

// By result, the largest deviation when each operand is off by its own; nothing if an integer or a
// truth value would change, or if a result would lose most of its digits.
std::optional<std::vector<double>> deviations(const runtime::OpDef& op, const runtime::Attrs& attrs,
                                              std::span<const runtime::TensorRef> inputs,
                                              std::span<const double> of_inputs,
                                              std::span<const runtime::TensorRef> results,
                                              bool rounds_otherwise);

double largest(const runtime::Tensor& tensor);  // of the absolute values
bool is_finite(const runtime::Tensor& tensor);

}  // namespace megjit::fuzz
