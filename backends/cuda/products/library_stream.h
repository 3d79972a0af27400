// backends/cuda/products/library_stream.h -- what a stream keeps for the libraries: a handle of
// each, made at the first use.
#pragma once

#include <mutex>

#include "backends/cuda/products/cublaslt_api.h"
#include "backends/cuda/products/cudnn.h"
#include "backends/cuda/products/product.h"

namespace megjit::cuda {

namespace cublaslt {
class Library;
}

struct LibraryStream::Handles {
    explicit Handles(StreamHandle stream) : stream(stream) {}
    ~Handles();

    // To be called with the mutex held. DeviceError where the library refuses to start.
    cudnn::Handle cudnn(const cudnn::Library& library);
    cublaslt::Handle cublaslt(const cublaslt::Library& library);

    void follow(StreamHandle other);

    StreamHandle stream;  // changes with the lock of the stream whose handles these are
    std::mutex mutex;  // a handle serves one call at a time

private:
    const cudnn::Library* cudnn_library_ = nullptr;
    const cublaslt::Library* cublaslt_library_ = nullptr;
    cudnn::Handle cudnn_ = nullptr;
    cublaslt::Handle cublaslt_ = nullptr;
};

}  // namespace megjit::cuda
