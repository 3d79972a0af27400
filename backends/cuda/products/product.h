// backends/cuda/products/ -- ops that NVIDIA's libraries compute: cuDNN and cuBLASLt. In: an op
// with its types, and a description of the card. Out: a planned Product that can be queued on a
// stream; or the reason why there is none, and then generated code does the work. Needs no CUDA to
// build: the libraries are opened at run time. Planning needs no GPU either.
//
// backends/cuda/products/product.h -- the narrow interface between these libraries and the device.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backends/cuda/driver.h"
#include "backends/cuda/products/card.h"
#include "runtime/core/op.h"

namespace megjit::cuda {

// A stream as the libraries see it: their handles, made at the first use with the stream's context
// current. Each stream has one; it must not outlive the context.
class LibraryStream {
public:
    explicit LibraryStream(StreamHandle stream);
    ~LibraryStream();
    LibraryStream(const LibraryStream&) = delete;
    LibraryStream& operator=(const LibraryStream&) = delete;

    // From now on the libraries queue on that stream of the same context.
    void follow(StreamHandle stream);

    struct Handles;
    Handles& handles() const { return *handles_; }

private:
    std::unique_ptr<Handles> handles_;
};

// One op, planned by a library. Any thread may queue it, on any stream of the card.
class Product {
public:
    static constexpr size_t kWorkspaceAlign = 256;  // cuBLASLt asks for it
    virtual ~Product() = default;
    // Asks the library what takes a handle to know, once, with the context current. DeviceError
    // where it refuses.
    virtual void prepare(LibraryStream& stream) const { (void)stream; }
    virtual size_t workspace_bytes() const = 0;
    // Queues one run, with the context current. The addresses are in the order of the op's operands
    // and results, and 16-byte aligned; `workspace` has workspace_bytes() bytes, aligned to
    // kWorkspaceAlign. DeviceError names the library, the call and the op.
    virtual void enqueue(LibraryStream& stream, std::span<const Address> inputs,
                         std::span<const Address> outputs, Address workspace) const = 0;
    // "cuDNN 9.27.0: engine 38, 1.5 MiB of workspace", for plans and dumps.
    virtual std::string describe() const = 0;
};

struct ProductOptions {
    size_t workspace_limit = size_t{256} << 20;  // in bytes, for one product
    bool tf32 = false;  // float32 on tensor cores: products of 11 significant bits
    bool deterministic = false;  // the same bits in every run
    // Measures how long a run takes. If it is set, the library's best proposals are tried, the
    // fastest is taken, and the choice is remembered on disk; if not, the remembered choice is
    // taken, or the library's first proposal.
    std::function<double(const Product&)> milliseconds = nullptr;
    // For plans that never run: where the library is missing, or lacks what it plans with, it is
    // assumed to compute what its rules allow.
    bool assumes_library = false;
};

// Null when no library computes the op as asked; then `why_not` says in a line why: no library, or
// the rule that the op breaks.
std::unique_ptr<Product> make_product(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs,
                                      const CardDescription& card, const ProductOptions& options,
                                      std::string* why_not);

// Takes the place of a product that is not planned (ProductOptions::assumes_library). why: "cuDNN
// is not installed here".
std::unique_ptr<Product> assumed_product(std::string why, size_t workspace_bytes);

}  // namespace megjit::cuda
