#include "backends/cuda/products/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>

#include "backends/cuda/products/library_stream.h"
#include "backends/cuda/products/plan_cache.h"
#include "runtime/host/error.h"
#include "runtime/ops/matmul.h"

namespace megjit::cuda::cublaslt {
namespace {

using runtime::cat;
using runtime::DeviceError;
using runtime::DType;
using runtime::EpilogueKind;
using runtime::MatmulProblem;
using runtime::OpCall;
using runtime::Type;

constexpr int kTried = 8;  // proposals that a search times
constexpr uint32_t kAlignment = 16;  // in bytes; every operand has it

// One of the library's descriptors, owned.
template <class Raw>
using Owned = std::unique_ptr<std::remove_pointer_t<Raw>, Status (*)(Raw)>;

// The operands as the library sees them. It counts columns first, and so computes y^T = b^T a^T:
// its first factor is our b, and its rows are our columns.
struct Matrices {
    Matrices(const Library& library, const MatmulProblem& p, DataType type)
        : Matrices(library, p, type, p.batch.empty() ? 1 : p.batch.back()) {}

    Owned<LayoutDescriptor> b, a, y;

private:
    Matrices(const Library& library, const MatmulProblem& p, DataType type, int64_t batch)
        : b(layout(library, type, p.tb ? p.k : p.n, p.tb ? p.n : p.k, batch,
                   p.batch.empty() || p.b_batch.back() == 1 ? 0 : p.k * p.n)),
          a(layout(library, type, p.ta ? p.m : p.k, p.ta ? p.k : p.m, batch,
                   p.batch.empty() || p.a_batch.back() == 1 ? 0 : p.m * p.k)),
          y(layout(library, type, p.n, p.m, batch, p.m * p.n)) {}

    static Owned<LayoutDescriptor> layout(const Library& library, DataType type, int64_t rows,
                                          int64_t columns, int64_t batch, int64_t step) {
        LayoutDescriptor raw = nullptr;
        library.check(library.call().create_layout(&raw, type, static_cast<uint64_t>(rows),
                                                   static_cast<uint64_t>(columns), rows),
                      "cublasLtMatrixLayoutCreate");
        Owned<LayoutDescriptor> made(raw, library.call().destroy_layout);
        const auto count = static_cast<int32_t>(batch);
        if (batch == 1) return made;
        library.check(library.call().set_layout(raw, kBatchCount, &count, sizeof count),
                      "the number of matrices");
        library.check(library.call().set_layout(raw, kBatchStride, &step, sizeof step),
                      "the step between matrices");
        return made;
    }
};

struct Steps {
    Epilogue epilogue = Epilogue::none;
    std::optional<size_t> bias = {}, addend = {};  // which operands of the op
    bool sums = false;  // the second result is the sums of a factor
};

// The library's first factor is our second one.
Steps steps_of_sums(int64_t of) {
    return {.epilogue = of == 0 ? Epilogue::sums_b : Epilogue::sums_a, .sums = true};
}

// Empty where the library lacks this order of steps: it adds the addend and the bias, then applies
// relu.
std::optional<Steps> steps_of(const MatmulProblem& p) {
    Steps steps;
    bool relu = false;
    for (const runtime::EpilogueStep& step : p.steps) {
        if (relu) return std::nullopt;
        if (step.kind == EpilogueKind::bias) steps.bias = step.operand;
        if (step.kind == EpilogueKind::add) steps.addend = step.operand;
        if (step.kind == EpilogueKind::relu) relu = true;
    }
    steps.epilogue = relu ? (steps.bias ? Epilogue::relu_bias : Epilogue::relu)
                          : (steps.bias ? Epilogue::bias : Epilogue::none);
    return steps;
}

std::optional<DataType> data_type(DType dtype) {
    switch (dtype) {
        case DType::f32: return DataType::f32;
        case DType::f16: return DataType::f16;
        case DType::bf16: return DataType::bf16;
        default: return std::nullopt;
    }
}

// The chosen kernel, and the workspace that it needs.
struct Chosen {
    Algorithm algorithm;
    size_t workspace_bytes = 0;
};

class MatmulProduct final : public Product {
public:
    // `rank`: which of the library's proposals to take, unless one was chosen before.
    MatmulProduct(const Library& library, const OpCall& call, const MatmulProblem& p, Steps steps,
                  Compute compute, size_t workspace, int rank, std::optional<Chosen> chosen)
        : library_(library),
          op_(call.op.name),
          problem_(p),
          steps_(steps),
          compute_(compute),
          matrices_(library, p, *data_type(call.inputs[0].dtype)),
          element_(runtime::size_of(call.inputs[0].dtype)),
          workspace_(workspace),
          rank_(rank),
          chosen_(chosen) {
        matmul();  // made once here, so that a refusal of the library is known now
    }

    size_t workspace_bytes() const override { return workspace_; }
    std::string describe() const override {
        return cat("cuBLASLt ", library_.version(), ": ", problem_.m, "x", problem_.n, "x",
                   problem_.k, compute_ == Compute::tf32 ? " tf32" : "", "; ", workspace_,
                   " bytes of workspace");
    }
    std::optional<Chosen> chosen() const { return chosen_; }

    void prepare(LibraryStream& stream) const override {
        const std::lock_guard lock(stream.handles().mutex);
        choose(stream.handles().cublaslt(library_), matmul().get());
    }

    void enqueue(LibraryStream& stream, std::span<const Address> inputs,
                 std::span<const Address> outputs, Address workspace) const override {
        const std::lock_guard lock(stream.handles().mutex);
        try {
            const Handle handle = stream.handles().cublaslt(library_);
            const Owned<MatmulDescriptor> descriptor = matmul();
            if (steps_.bias) set(descriptor.get(), kBiasPointer, pointer(inputs[*steps_.bias]));
            if (steps_.sums) set(descriptor.get(), kBiasPointer, pointer(outputs[1]));
            const Chosen& chosen = choose(handle, descriptor.get());
            const int64_t outer = outer_count();
            for (int64_t i = 0; i < outer; ++i) {
                const Address y = outputs[0] + offset(i, problem_.batch, problem_.m * problem_.n);
                const Address c = steps_.addend ? inputs[*steps_.addend] + (y - outputs[0]) : y;
                const float one = 1, beta = steps_.addend ? 1 : 0;
                library_.check(
                    library_.call().matmul(
                        handle, descriptor.get(), &one,
                        pointer(inputs[1] + offset(i, problem_.b_batch, problem_.k * problem_.n)),
                        matrices_.b.get(),
                        pointer(inputs[0] + offset(i, problem_.a_batch, problem_.m * problem_.k)),
                        matrices_.a.get(), &beta, pointer(c), matrices_.y.get(), pointer(y),
                        matrices_.y.get(), &chosen.algorithm, pointer(workspace), workspace_,
                        stream.handles().stream),
                    "cublasLtMatmul");
            }
        } catch (const DeviceError& error) { throw DeviceError(cat(op_, ": ", error.what())); }
    }

private:
    static void* pointer(Address address) { return reinterpret_cast<void*>(address); }
    template <class T>
    void set(MatmulDescriptor descriptor, MatmulAttribute name, const T& value) const {
        library_.check(library_.call().set_matmul(descriptor, name, &value, sizeof value),
                       "cublasLtMatmulDescSetAttribute");
    }
    Owned<MatmulDescriptor> matmul() const {
        MatmulDescriptor raw = nullptr;
        library_.check(library_.call().create_matmul(&raw, compute_, DataType::f32),
                       "cublasLtMatmulDescCreate");
        Owned<MatmulDescriptor> made(raw, library_.call().destroy_matmul);
        set(raw, kTransposeA, problem_.tb ? Transpose::yes : Transpose::no);
        set(raw, kTransposeB, problem_.ta ? Transpose::yes : Transpose::no);
        set(raw, kEpilogue, steps_.epilogue);
        return made;
    }
    // The library takes one batch axis; a loop goes over the axes before it.
    int64_t outer_count() const {
        int64_t count = 1;
        for (size_t axis = 0; axis + 1 < problem_.batch.size(); ++axis)
            count *= problem_.batch[axis];
        return count;
    }
    // Where the matrices at place `index` of the outer batch axes begin, in bytes.
    Address offset(int64_t index, const std::vector<int64_t>& extents, int64_t matrix) const {
        if (extents.empty()) return 0;
        int64_t step = matrix * extents.back(), elements = 0;
        for (size_t axis = extents.size() - 1; axis-- > 0; index /= problem_.batch[axis]) {
            if (extents[axis] > 1) elements += index % problem_.batch[axis] * step;
            step *= extents[axis];
        }
        return static_cast<Address>(elements) * element_;
    }
    // The alignment of the matrices at all places of the outer batch axes, in bytes.
    uint32_t alignment(const std::vector<int64_t>& extents, int64_t matrix) const {
        if (outer_count() == 1) return kAlignment;
        const size_t step = static_cast<size_t>(matrix * extents.back()) * element_;
        return static_cast<uint32_t>(std::gcd(step, size_t{kAlignment}));
    }
    const Chosen& choose(Handle handle, MatmulDescriptor descriptor) const {
        const std::lock_guard lock(mutex_);
        if (chosen_) return *chosen_;
        PreferenceDescriptor raw = nullptr;
        library_.check(library_.call().create_preference(&raw), "cublasLtMatmulPreferenceCreate");
        const Owned<PreferenceDescriptor> preference(raw, library_.call().destroy_preference);
        const auto prefer = [&](PreferenceAttribute name, const auto& value) {
            library_.check(library_.call().set_preference(raw, name, &value, sizeof value),
                           "cublasLtMatmulPreferenceSetAttribute");
        };
        prefer(kMaxWorkspace, uint64_t{workspace_});
        prefer(kAlignmentA, alignment(problem_.b_batch, problem_.k * problem_.n));
        prefer(kAlignmentB, alignment(problem_.a_batch, problem_.m * problem_.k));
        for (PreferenceAttribute name : {kAlignmentC, kAlignmentD})
            prefer(name, alignment(problem_.batch, problem_.m * problem_.n));
        Proposal proposals[kTried];
        int count = 0;
        library_.check(library_.call().propose(
                           handle, descriptor, matrices_.b.get(), matrices_.a.get(),
                           matrices_.y.get(), matrices_.y.get(), raw, rank_ + 1, proposals, &count),
                       "cublasLtMatmulAlgoGetHeuristic");
        if (count <= rank_ || proposals[rank_].state != 0)
            throw DeviceError(cat("cuBLASLt ", library_.version(), " has no kernel for it"));
        chosen_ = Chosen{proposals[rank_].algorithm, proposals[rank_].workspace_bytes};
        return *chosen_;
    }

    const Library& library_;
    std::string op_;
    MatmulProblem problem_;
    Steps steps_;
    Compute compute_;
    Matrices matrices_;
    size_t element_ = 4;
    size_t workspace_ = 0;
    int rank_ = 0;
    mutable std::mutex mutex_;
    mutable std::optional<Chosen> chosen_;
};

// The default of cuBLAS itself: more helps only Hopper and its successors, and a workspace far
// larger than the result, whose parts it holds, never pays.
size_t workspace_of(const CardDescription& card, const Type& y, size_t limit) {
    const size_t most = size_t{card.arch >= 90 ? 32u : 4u} << 20;
    const size_t parts = static_cast<size_t>(y.numel()) * sizeof(float) * 16;
    return std::min({most, limit, (parts + 255) / 256 * 256});
}

std::string key_of(const Library& library, const OpCall& call, const CardDescription& card,
                   Compute compute, size_t workspace) {
    std::string key = cat("cuBLASLt\nalgorithm of ", library.version(), " for sm_", card.arch,
                          " x ", card.multiprocessors, compute == Compute::tf32 ? ", tf32, " : ", ",
                          workspace, " bytes\n", call.op.name);
    for (const Type& type : call.inputs) key += cat(" ", to_string(type));
    for (const runtime::Attr& attr : call.attrs) key += cat(" ", runtime::to_string(attr));
    return key;
}

}  // namespace

const Library* Library::find(std::string* why_not) {
    return runtime::made_of<Library>(runtime::NvidiaLibrary::cublaslt, why_not);
}

Library::Library(const runtime::FoundLibrary& found) : found_(found) {
#define MEGJIT_X(symbol, name, result, parameters) found.function(#symbol, functions_.name);
    MEGJIT_CUBLASLT_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
}

void Library::check(Status status, const char* what) const {
    if (status != 0)
        throw DeviceError(
            cat("cuBLASLt ", version(), ": ", what, ": ", functions_.error_text(status)));
}

std::unique_ptr<Product> make_product(const OpCall& call, std::span<const Type> outputs,
                                      const CardDescription& card, const ProductOptions& options,
                                      std::string* why_not) {
    const auto refuse = [&](std::string why) {
        *why_not = std::move(why);
        return nullptr;
    };
    const Type& y = outputs[0];
    if (!data_type(y.dtype)) return refuse(cat("cuBLASLt computes no ", to_string(y)));
    const MatmulProblem p = runtime::matmul_problem(call, outputs);
    if (y.numel() == 0 || p.k == 0) return refuse("nothing is computed of nothing");
    const bool sums = &call.op == &runtime::matmul_sums();
    const std::optional<Steps> steps =
        sums ? std::optional(steps_of_sums(call.integer("of"))) : steps_of(p);
    if (!steps) return refuse("cuBLASLt does relu last");
    for (const Type& type : call.inputs)
        if (is_packed(type.layout))
            return refuse(cat("cuBLASLt does not know the layout of ", to_string(type)));
    const size_t workspace = workspace_of(card, y, options.workspace_limit);
    const Library* library = Library::find(why_not);
    if (!library)
        return options.assumes_library
                   ? assumed_product("cuBLASLt is not installed here", workspace)
                   : nullptr;
    const Compute compute = options.tf32 && y.dtype == DType::f32 ? Compute::tf32 : Compute::f32;
    const auto made = [&](int rank, std::optional<Chosen> chosen) {
        return std::make_unique<MatmulProduct>(*library, call, p, *steps, compute, workspace, rank,
                                               chosen);
    };
    try {
        const std::string key = key_of(*library, call, card, compute, workspace);
        if (const auto known = cached_plan(key); known && known->size() == sizeof(Chosen)) {
            Chosen chosen;
            std::memcpy(&chosen, known->data(), sizeof chosen);
            return made(0, chosen);
        }
        if (!options.milliseconds) return made(0, {});
        std::optional<Chosen> best;
        double shortest = 0;
        for (int rank = 0; rank < kTried; ++rank) {
            const auto tried = made(rank, {});
            try {
                const double time = options.milliseconds(*tried);
                if (!best || time < shortest) shortest = time, best = tried->chosen();
            } catch (const DeviceError&) { break; }  // there are no more proposals
        }
        if (best) cache_plan(key, {reinterpret_cast<const char*>(&*best), sizeof *best});
        return made(0, best);
    } catch (const DeviceError& error) { return refuse(error.what()); }
}

}  // namespace megjit::cuda::cublaslt
