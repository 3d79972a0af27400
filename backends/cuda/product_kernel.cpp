#include "backends/cuda/product_kernel.h"

#include <algorithm>

#include "backends/cuda/cuda_stream.h"
#include "backends/cuda/products/product.h"
#include "runtime/host/error.h"
#include "runtime/host/product_rules.h"

namespace megjit::cuda {
namespace {

using runtime::Executable;
using runtime::OpCall;
using runtime::Type;

std::vector<Address> addresses(void* const* pointers, size_t count) {
    std::vector<Address> list(count);
    for (size_t i = 0; i < count; ++i) list[i] = reinterpret_cast<Address>(pointers[i]);
    return list;
}

class ProductKernel final : public Executable {
public:
    ProductKernel(std::unique_ptr<Product> product, size_t inputs, size_t outputs)
        : product_(std::move(product)),
          remark_(product_->describe()),
          inputs_(inputs),
          outputs_(outputs) {}
    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const std::vector<Address> in = addresses(inputs, inputs_),
                                   out = addresses(outputs, outputs_);
        const auto scratch = reinterpret_cast<Address>(workspace);
        dynamic_cast<CudaStream&>(stream).run_library(
            product_.get(), in, out, scratch,
            [&](LibraryStream& library) { product_->enqueue(library, in, out, scratch); });
    }
    size_t workspace_bytes() const override { return product_->workspace_bytes(); }
    size_t workspace_align() const override { return Product::kWorkspaceAlign; }
    std::string_view remark() const override { return remark_; }

private:
    std::unique_ptr<Product> product_;
    std::string remark_;
    size_t inputs_, outputs_;
};

// Runs products of one call on the device's stream, in memory of its own, and measures their time.
class Stopwatch {
public:
    Stopwatch(CudaDevice& device, const OpCall& call, std::span<const Type> outputs)
        : device_(device) {
        for (const Type& type : call.inputs) in_.push_back(allocate(type.bytes()));
        for (const Type& type : outputs) out_.push_back(allocate(type.bytes()));
    }
    ~Stopwatch() {
        for (const auto& [memory, bytes] : taken_) device_.allocator().release(memory, bytes);
    }
    Stopwatch(const Stopwatch&) = delete;

    double milliseconds(const Product& product) {
        constexpr int kRuns = 5;
        const Address workspace = allocate(product.workspace_bytes());
        auto& stream = dynamic_cast<CudaStream&>(device_.stream());
        const auto run = [&] {
            stream.run_library(&product, in_, out_, workspace, [&](LibraryStream& library) {
                product.enqueue(library, in_, out_, workspace);
            });
        };
        run();  // excludes work that the library does only once
        const runtime::Ticket begin = stream.record_time();
        for (int i = 0; i < kRuns; ++i) run();
        const runtime::Ticket end = stream.record_time();
        stream.synchronize(end);
        return 1e3 * stream.seconds_between(begin, end) / kRuns;
    }

private:
    Address allocate(size_t bytes) {
        if (bytes == 0) return 0;
        taken_.emplace_back(runtime::allocate(device_, bytes), bytes);
        return reinterpret_cast<Address>(taken_.back().first);
    }
    CudaDevice& device_;
    std::vector<std::pair<void*, size_t>> taken_;
    std::vector<Address> in_, out_;
};

ProductOptions options_of(const CudaDevice& device, const OpCall& call,
                          std::span<const Type> outputs) {
    const runtime::ProductRules rules = runtime::product_rules();
    // As much as the operands, if that is more than the default: with less, cuDNN's engines for
    // gradients of a first layer are 100 times slower.
    size_t operand_bytes = 0;
    for (const auto list : {call.inputs, outputs})
        for (const Type& type : list) operand_bytes += type.bytes();
    ProductOptions options{.tf32 = rules.tf32,
                           .deterministic = rules.deterministic,
                           .assumes_library = !device.gpu().compiles()};
    options.workspace_limit = std::max(options.workspace_limit, operand_bytes / 4 * 5);
    return options;
}

// Where there is no memory for a search, the library's first proposal is taken.
std::unique_ptr<Product> plan(CudaDevice& device, const OpCall& call, std::span<const Type> outputs,
                              std::string* why_not) {
    const runtime::ProductRules rules = runtime::product_rules();
    const CardDescription& card = device.gpu().description();
    ProductOptions options = options_of(device, call, outputs);
    if (rules.timed && device.gpu().is_there()) try {
            std::optional<Stopwatch> watch;
            options.milliseconds = [&](const Product& product) {
                if (!watch) watch.emplace(device, call, outputs);
                return watch->milliseconds(product);
            };
            return make_product(call, outputs, card, options, why_not);
        } catch (const runtime::OutOfMemory&) { options.milliseconds = nullptr; }
    return make_product(call, outputs, card, options, why_not);
}

}  // namespace

bool plans_product(const CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    std::string why_not;
    return make_product(call, outputs, device.gpu().description(),
                        options_of(device, call, outputs), &why_not) != nullptr;
}

std::shared_ptr<const Executable> product_kernel(CudaDevice& device, const OpCall& call,
                                                 std::span<const Type> outputs,
                                                 std::string* why_not) {
    auto product = plan(device, call, outputs, why_not);
    if (!product) return nullptr;
    if (device.gpu().is_there()) try {
            dynamic_cast<CudaStream&>(device.stream()).ask_libraries([&](LibraryStream& libraries) {
                product->prepare(libraries);
            });
        } catch (const runtime::DeviceError& error) {
            *why_not = error.what();
            return nullptr;
        }
    return std::make_shared<const ProductKernel>(std::move(product), call.inputs.size(),
                                                 outputs.size());
}

}  // namespace megjit::cuda
