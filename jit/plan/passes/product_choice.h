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

// Takes the cheapest by Costs: as measured on this machine, else by the model. With MEGJIT_TUNE=on
// what was not measured is measured first, which takes up to a second. On a GPU nothing is.
ProductChoice choose_product(const Graph& graph, const Node& node, const PipelineOptions& options);

}  // namespace megjit::jit
