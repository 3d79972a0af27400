#include "backends/cuda/products/cudnn_product.h"

#include <algorithm>

#include "backends/cuda/products/cudnn_plan.h"
#include "backends/cuda/products/cudnn_problems.h"
#include "backends/cuda/products/library_stream.h"
#include "runtime/host/error.h"
#include "runtime/host/nvidia_libraries.h"
#include "runtime/ops/known.h"

namespace megjit::cuda::cudnn {
namespace {

using runtime::cat;

constexpr size_t kTried = 8;  // proposals that a search times
constexpr size_t kScratchAlignment = Product::kWorkspaceAlign;  // plans' workspaces follow it

struct PlannedStep {
    std::vector<int64_t> ids = {};
    std::vector<TensorSpec> operands = {};  // the tensors of these ids
    PlanRef plan = nullptr;
};

class GraphProduct final : public Product {
public:
    GraphProduct(const Library& library, std::string op, const Problem& problem,
                 const std::vector<PlanRef>& plans)
        : library_(library), op_(std::move(op)) {
        for (size_t bytes : problem.scratch_bytes) {
            scratch_.push_back(workspace_);
            workspace_ += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
        }
        shared_ = workspace_;
        for (size_t i = 0; i < plans.size(); ++i) {
            PlannedStep step{.plan = plans[i]};
            const std::vector<TensorSpec>& tensors = problem.steps[i].tensors;
            for (size_t t = 0; t < tensors.size(); ++t) {
                if (tensors[t].place == Place::inside) continue;
                step.ids.push_back(static_cast<int64_t>(t) + 1);
                step.operands.push_back(tensors[t]);
            }
            workspace_ = std::max(workspace_, shared_ + step.plan->workspace_bytes());
            steps_.push_back(std::move(step));
        }
    }

    size_t workspace_bytes() const override { return workspace_; }

    void enqueue(LibraryStream& stream, std::span<const Address> inputs,
                 std::span<const Address> outputs, Address workspace) const override {
        const std::lock_guard lock(stream.handles().mutex);
        try {
            const Handle handle = stream.handles().cudnn(library_);
            for (const PlannedStep& step : steps_) {
                std::vector<void*> pointers;
                for (const TensorSpec& tensor : step.operands)
                    pointers.push_back(pointer_of(tensor, inputs, outputs, workspace));
                step.plan->run(handle, step.ids, pointers,
                               reinterpret_cast<void*>(workspace + shared_));
            }
        } catch (const runtime::DeviceError& error) {
            throw runtime::DeviceError(cat(op_, ": ", error.what()));
        }
    }

    std::string describe() const override {
        std::string text = cat("cuDNN ", library_.version(), ": ");
        for (size_t i = 0; i < steps_.size(); ++i)
            text += cat(i ? ", " : "", steps_[i].plan->engine());
        return cat(text, "; ", workspace_, " bytes of workspace");
    }

private:
    void* pointer_of(const TensorSpec& tensor, std::span<const Address> inputs,
                     std::span<const Address> outputs, Address workspace) const {
        const auto index = static_cast<size_t>(tensor.index);
        switch (tensor.place) {
            case Place::input: return reinterpret_cast<void*>(inputs[index] + tensor.offset);
            case Place::output: return reinterpret_cast<void*>(outputs[index] + tensor.offset);
            case Place::scratch: return reinterpret_cast<void*>(workspace + scratch_[index]);
            case Place::number: return const_cast<float*>(&tensor.number);
            case Place::inside: break;
        }
        return nullptr;
    }

    const Library& library_;
    std::string op_;
    std::vector<PlannedStep> steps_;
    std::vector<size_t> scratch_;  // where each tensor begins
    size_t shared_ = 0;  // where the plans' workspaces begin, which they use in turn
    size_t workspace_ = 0;
};

// The plans of one way to compute an op.
class Search {
public:
    Search(const Library& library, const runtime::OpCall& call, const Problem& problem,
           const CardDescription& card, const ProductOptions& options)
        : library_(library),
          call_(call),
          problem_(problem),
          milliseconds_(options.milliseconds),
          planner_(library, card, limits_of(problem, options)) {}

    std::unique_ptr<Product> run(std::string* why_not) {
        for (const Graph& graph : problem_.steps) {
            plans_.push_back(planner_.plan(graph, why_not));
            if (!plans_.back()) return nullptr;
        }
        if (milliseconds_)
            for (size_t step = 0; step < plans_.size(); ++step) improve(step);
        return product();
    }

private:
    static Limits limits_of(const Problem& problem, const ProductOptions& options) {
        size_t scratch = 0;
        for (size_t bytes : problem.scratch_bytes) scratch += bytes + kScratchAlignment;
        return {scratch < options.workspace_limit ? options.workspace_limit - scratch : 0,
                options.tf32, options.deterministic};
    }
    std::unique_ptr<Product> product() const {
        return std::make_unique<GraphProduct>(library_, call_.op.name, problem_, plans_);
    }
    void improve(size_t step) {
        const Graph& graph = problem_.steps[step];
        if (planner_.is_chosen(graph)) return;
        std::string ignored;
        PlanRef best = plans_[step];
        double shortest = 0;
        for (PlanRef& tried : planner_.proposals(graph, kTried, &ignored)) {
            plans_[step] = tried;
            const double time = milliseconds_(*product());
            if (shortest == 0 || time < shortest) shortest = time, best = tried;
        }
        plans_[step] = best;
        planner_.choose(graph, *best);
    }

    const Library& library_;
    const runtime::OpCall& call_;
    const Problem& problem_;
    const std::function<double(const Product&)>& milliseconds_;
    Planner planner_;
    std::vector<PlanRef> plans_;
};

// Convolutions with more to do are compiled when they are planned, on tensor cores alone. Without a
// driver cuDNN has no engine for them.
bool wants_driver(const runtime::OpCall& call, const ProductOptions& options) {
    const bool has_more = call.op.epilogue || &call.op == &runtime::ops::conv_stats() ||
                          &call.op == &runtime::ops::conv_backward_data_sums();
    return has_more && (call.inputs[0].dtype != runtime::DType::f32 || options.tf32) &&
           !runtime::find_library(runtime::NvidiaLibrary::driver);
}

}  // namespace

std::unique_ptr<Product> make_product(const runtime::OpCall& call,
                                      std::span<const runtime::Type> outputs,
                                      const CardDescription& card, const ProductOptions& options,
                                      std::string* why_not) {
    const std::vector<Problem> ways = problems_of(call, outputs, why_not);
    if (ways.empty()) return nullptr;
    const Library* library = Library::find(why_not);
    if (!library)
        return options.assumes_library ? assumed_product("cuDNN is not installed here", 0)
                                       : nullptr;
    for (const Problem& way : ways)
        if (auto made = Search(*library, call, way, card, options).run(why_not)) return made;
    if (options.assumes_library && wants_driver(call, options))
        return assumed_product(
            cat("cuDNN ", library->version(), " plans it beside a driver, and there is none"), 0);
    return nullptr;
}

}  // namespace megjit::cuda::cudnn
