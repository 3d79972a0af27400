// backends/cuda/products/cublaslt.h -- matrix products by cuBLASLt. Float32 is strict unless TF32
// is asked for; halves add up in float32.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/products/cublaslt_api.h"
#include "backends/cuda/products/product.h"
#include "runtime/host/nvidia_libraries.h"

namespace megjit::cuda::cublaslt {

struct Functions {
#define MEGJIT_X(symbol, name, result, parameters) result(*name) parameters = nullptr;
    MEGJIT_CUBLASLT_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
};

class Library {
public:
    // Null, with the reason, where cuBLASLt is missing.
    static const Library* find(std::string* why_not);
    explicit Library(const runtime::FoundLibrary& found);

    const Functions& call() const { return functions_; }
    const std::string& version() const { return found_.version_text; }
    void check(Status status, const char* what) const;

private:
    const runtime::FoundLibrary& found_;
    Functions functions_;
};

// Plans matmul and matmul_epilogue. The library chooses the kernel at the first run, as it proposes
// kernels only for a real card.
std::unique_ptr<Product> make_product(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs,
                                      const CardDescription& card, const ProductOptions& options,
                                      std::string* why_not);

}  // namespace megjit::cuda::cublaslt
