// jit/plan/passes/product_choice.h -- who computes a product with element-wise ops after it: the
// device's library and a kernel for those ops, or one generated kernel for all.
#pragma once

#include "jit/plan/passes/passes.h"

namespace megjit::jit {

struct ProductChoice {
    Products by = Products::library;
    std::string why = {};  // for reports; empty where no kernel could be generated
    bool is_generated() const { return by != Products::library; }
};

// The speed of tiles on a GPU as a share of its library's, without and with tensor cores. These are
// guesses: no card has timed them beside it.
constexpr double kSpeedOfTiles = 0.5, kSpeedOfTensorTiles = 0.25;

// Decides by the timings of this machine (codegen/tuning.h), else by a model: a kernel is generated
// where the second factor is so small, and the sum so short, that the result's way through memory
// counts, and the device has no instructions of its own for the dtype.
// On a GPU nothing is measured: there a model compares what the result's way through memory takes
// with what the library is faster by. With MEGJIT_TUNE=on what was not measured is measured first,
// which takes up to a second.
ProductChoice choose_product(const Graph& graph, const Node& node, const PipelineOptions& options);

}  // namespace megjit::jit
