#include "backends/cuda/products/product.h"

#include "backends/cuda/products/cublaslt.h"
#include "backends/cuda/products/cudnn_product.h"
#include "backends/cuda/products/library_stream.h"
#include "runtime/host/error.h"

namespace megjit::cuda {

LibraryStream::LibraryStream(StreamHandle stream) : handles_(std::make_unique<Handles>(stream)) {}
LibraryStream::~LibraryStream() = default;
void LibraryStream::follow(StreamHandle stream) { handles_->follow(stream); }

void LibraryStream::Handles::follow(StreamHandle other) {
    const std::lock_guard lock(mutex);
    if (stream == other) return;
    stream = other;
    if (cudnn_)
        cudnn_library_->check(cudnn_library_->call().set_stream(cudnn_, stream), "cudnnSetStream");
}

LibraryStream::Handles::~Handles() {
    if (cudnn_) cudnn_library_->call().destroy(cudnn_);
    if (cublaslt_) cublaslt_library_->call().destroy(cublaslt_);
}

cudnn::Handle LibraryStream::Handles::cudnn(const cudnn::Library& library) {
    if (cudnn_) return cudnn_;
    cudnn::Handle made = nullptr;
    library.check(library.call().create(&made), "cudnnCreate");
    cudnn_library_ = &library;
    cudnn_ = made;
    library.check(library.call().set_stream(cudnn_, stream), "cudnnSetStream");
    return cudnn_;
}

cublaslt::Handle LibraryStream::Handles::cublaslt(const cublaslt::Library& library) {
    if (cublaslt_) return cublaslt_;
    library.check(library.call().create(&cublaslt_), "cublasLtCreate");
    cublaslt_library_ = &library;
    return cublaslt_;
}

namespace {

class AssumedProduct final : public Product {
public:
    AssumedProduct(std::string why, size_t workspace_bytes)
        : why_(std::move(why)), workspace_bytes_(workspace_bytes) {}
    size_t workspace_bytes() const override { return workspace_bytes_; }
    void enqueue(LibraryStream&, std::span<const Address>, std::span<const Address>,
                 Address) const override {
        throw runtime::InternalError("a product that is only planned was queued");
    }
    std::string describe() const override {
        return runtime::cat(why_, ", so its workspace is ",
                            workspace_bytes_ ? "estimated" : "not counted");
    }

private:
    std::string why_;
    size_t workspace_bytes_;
};

}  // namespace

std::unique_ptr<Product> assumed_product(std::string why, size_t workspace_bytes) {
    return std::make_unique<AssumedProduct>(std::move(why), workspace_bytes);
}

std::unique_ptr<Product> make_product(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs,
                                      const CardDescription& card, const ProductOptions& options,
                                      std::string* why_not) {
    const bool is_matmul = call.op.name.starts_with("matmul");
    return (is_matmul ? cublaslt::make_product : cudnn::make_product)(call, outputs, card, options,
                                                                      why_not);
}

}  // namespace megjit::cuda
