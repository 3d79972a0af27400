// backends/cuda/products/cudnn_product.h -- an op computed by cuDNN: plans that run one after the
// other.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/products/product.h"

namespace megjit::cuda::cudnn {

std::unique_ptr<Product> make_product(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs,
                                      const CardDescription& card, const ProductOptions& options,
                                      std::string* why_not);

}  // namespace megjit::cuda::cudnn
