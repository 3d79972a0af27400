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
constexpr uint32_t kAlignment = 16;  // bytes, of every operand

// One of the library's descriptors, owned.
template <class Raw>
using Owned = std::unique_ptr<std::remove_pointer_t<Raw>, Status (*)(Raw)>;

// One operand as the library sees it, and how far apart its rows lie: in the caller's memory, or in
// a copy of it.
struct Operand {
    int64_t rows = 0, columns = 0;  // the library's: a column of it is a row of ours
    int64_t copy = 0;  // elements from column to column of a copy; 0: none is made
    int64_t lead() const { return copy ? copy : rows; }
    size_t copy_bytes(size_t element) const {
        return (static_cast<size_t>(copy * columns) * element + 255) / 256 * 256;
    }
};

// The library counts columns first, and so computes y^T = b^T a^T: its first factor is our b, and
// its rows are our columns.
struct Operands {
    Operand b, a, y;
    bool any_copy() const { return b.copy || a.copy || y.copy; }
};

// Rows that do not begin at 16 bytes keep the library from tensor cores, which take an eighth of
// the time: then a copy whose rows do is worth its bytes, if each element takes part in enough
// products. (GPT-2's 50,257 words on an H100: 6.6 ms without.)
Operands operands_of(const MatmulProblem& p, const Type& type, Compute compute, bool may_copy) {
    constexpr int64_t kLeastProducts = 256;
    Operands all{
        {p.tb ? p.k : p.n, p.tb ? p.n : p.k}, {p.ta ? p.m : p.k, p.ta ? p.k : p.m}, {p.n, p.m}};
    const bool on_tensor_cores = type.dtype != DType::f32 || compute == Compute::tf32;
    if (!may_copy || !on_tensor_cores || p.batch.size() > 0) return all;
    const auto unit = static_cast<int64_t>(kAlignment / runtime::size_of(type.dtype));
    bool is_worth_it = true;
    const auto consider = [&](Operand& operand, int64_t products) {
        if (operand.rows % unit == 0) return;
        operand.copy = (operand.rows + unit - 1) / unit * unit;
        is_worth_it = is_worth_it && products >= kLeastProducts;
    };
    consider(all.b, p.m);
    consider(all.a, p.n);
    consider(all.y, p.k);
    if (!is_worth_it) all.b.copy = all.a.copy = all.y.copy = 0;
    return all;
}

Owned<LayoutDescriptor> layout(const Library& library, DataType type, const Operand& operand,
                               int64_t lead, int64_t batch = 1, int64_t step = 0) {
    LayoutDescriptor raw = nullptr;
    library.check(library.call().create_layout(&raw, type, static_cast<uint64_t>(operand.rows),
                                               static_cast<uint64_t>(operand.columns), lead),
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

// What is multiplied, copies in place of what is copied.
struct Matrices {
    Matrices(const Library& library, const MatmulProblem& p, const Operands& all, DataType type)
        : Matrices(library, p, all, type, p.batch.empty() ? 1 : p.batch.back()) {}

    Owned<LayoutDescriptor> b, a, y;

private:
    Matrices(const Library& library, const MatmulProblem& p, const Operands& all, DataType type,
             int64_t batch)
        : b(layout(library, type, all.b, all.b.lead(), batch,
                   p.batch.empty() || p.b_batch.back() == 1 ? 0 : p.k * p.n)),
          a(layout(library, type, all.a, all.a.lead(), batch,
                   p.batch.empty() || p.a_batch.back() == 1 ? 0 : p.m * p.k)),
          y(layout(library, type, all.y, all.y.lead(), batch, p.m * p.n)) {}
};

struct Steps {
    Epilogue epilogue = Epilogue::none;
    std::optional<size_t> bias = {}, addend = {};  // operands of the op
};

// Empty where the library has no such order of steps: it adds the addend and the bias, then relu.
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

// Which kernel, and what it needs.
struct Chosen {
    Algorithm algorithm;
    size_t workspace_bytes = 0;
};

class MatmulProduct final : public Product {
public:
    // `rank`: which of the library's proposals, unless one was chosen before.
    MatmulProduct(const Library& library, const OpCall& call, const MatmulProblem& p, Steps steps,
                  const Operands& operands, Compute compute, size_t workspace, int rank,
                  std::optional<Chosen> chosen)
        : library_(library),
          op_(call.op.name),
          problem_(p),
          steps_(steps),
          compute_(compute),
          type_(*data_type(call.inputs[0].dtype)),
          operands_(operands),
          matrices_(library, p, operands, type_),
          element_(runtime::size_of(call.inputs[0].dtype)),
          workspace_(workspace),
          rank_(rank),
          chosen_(chosen) {
        matmul();  // made here once, so that what the library refuses is known now
    }

    // What the kernel takes, then the copies.
    size_t workspace_bytes() const override {
        return workspace_ + operands_.b.copy_bytes(element_) + operands_.a.copy_bytes(element_) +
               operands_.y.copy_bytes(element_);
    }
    std::string describe() const override {
        return cat("cuBLASLt ", library_.version(), ": ", problem_.m, "x", problem_.n, "x",
                   problem_.k, compute_ == Compute::tf32 ? " tf32" : "",
                   operands_.any_copy() ? ", rows copied to 16 bytes" : "", "; ", workspace_bytes(),
                   " bytes of workspace");
    }
    std::optional<Chosen> chosen() const { return chosen_; }

    void enqueue(LibraryStream& stream, std::span<const Address> inputs,
                 std::span<const Address> outputs, Address workspace) const override {
        const std::lock_guard lock(stream.handles().mutex);
        try {
            const Handle handle = stream.handles().cublaslt(library_);
            const Owned<MatmulDescriptor> descriptor = matmul();
            if (steps_.bias)
                set(descriptor.get(), kBiasPointer, reinterpret_cast<void*>(inputs[*steps_.bias]));
            const Chosen& chosen = choose(handle, descriptor.get());
            if (operands_.any_copy()) {
                const Address copy_b = workspace + workspace_,
                              copy_a = copy_b + operands_.b.copy_bytes(element_),
                              copy_y = copy_a + operands_.a.copy_bytes(element_);
                const Address b = copied(stream, operands_.b, inputs[1], copy_b),
                              a = copied(stream, operands_.a, inputs[0], copy_a),
                              y = operands_.y.copy ? copy_y : outputs[0];
                multiply(stream, descriptor.get(), chosen, a, b, 0, y, workspace);
                if (operands_.y.copy)
                    transform(stream, operands_.y, copy_y, operands_.y.copy, outputs[0],
                              operands_.y.rows);
                return;
            }
            const int64_t outer = outer_count();
            for (int64_t i = 0; i < outer; ++i) {
                const Address y = outputs[0] + offset(i, problem_.batch, problem_.m * problem_.n);
                const Address c = steps_.addend ? inputs[*steps_.addend] + (y - outputs[0]) : 0;
                multiply(stream, descriptor.get(), chosen,
                         inputs[0] + offset(i, problem_.a_batch, problem_.m * problem_.k),
                         inputs[1] + offset(i, problem_.b_batch, problem_.k * problem_.n), c, y,
                         workspace);
            }
        } catch (const DeviceError& error) { throw DeviceError(cat(op_, ": ", error.what())); }
    }

private:
    // `c`: what is added, or 0.
    void multiply(LibraryStream& stream, MatmulDescriptor descriptor, const Chosen& chosen,
                  Address a, Address b, Address c, Address y, Address workspace) const {
        const float one = 1, beta = c ? 1 : 0;
        library_.check(
            library_.call().matmul(stream.handles().cublaslt(library_), descriptor, &one,
                                   pointer(b), matrices_.b.get(), pointer(a), matrices_.a.get(),
                                   &beta, pointer(c ? c : y), matrices_.y.get(), pointer(y),
                                   matrices_.y.get(), &chosen.algorithm, pointer(workspace),
                                   workspace_, stream.handles().stream),
            "cublasLtMatmul");
    }
    // Where the factor lies that is multiplied.
    Address copied(LibraryStream& stream, const Operand& operand, Address from, Address to) const {
        if (!operand.copy) return from;
        transform(stream, operand, from, operand.rows, to, operand.copy);
        return to;
    }
    // A copy of a matrix whose columns lie elsewhere, and otherwise far apart.
    void transform(LibraryStream& stream, const Operand& operand, Address from, int64_t from_lead,
                   Address to, int64_t to_lead) const {
        TransformDescriptor raw = nullptr;
        library_.check(library_.call().create_transform(&raw, DataType::f32),
                       "cublasLtMatrixTransformDescCreate");
        const Owned<TransformDescriptor> made(raw, library_.call().destroy_transform);
        const auto source = layout(library_, type_, operand, from_lead),
                   target = layout(library_, type_, operand, to_lead);
        const float one = 1, zero = 0;
        library_.check(
            library_.call().transform(stream.handles().cublaslt(library_), raw, &one, pointer(from),
                                      source.get(), &zero, nullptr, nullptr, pointer(to),
                                      target.get(), stream.handles().stream),
            "cublasLtMatrixTransform");
    }
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
    // The library takes one batch axis; those before it are a loop.
    int64_t outer_count() const {
        int64_t count = 1;
        for (size_t axis = 0; axis + 1 < problem_.batch.size(); ++axis)
            count *= problem_.batch[axis];
        return count;
    }
    // In bytes, of the matrices at place `index` of the outer batch axes.
    Address offset(int64_t index, const std::vector<int64_t>& extents, int64_t matrix) const {
        if (extents.empty()) return 0;
        int64_t step = matrix * extents.back(), elements = 0;
        for (size_t axis = extents.size() - 1; axis-- > 0; index /= problem_.batch[axis]) {
            if (extents[axis] > 1) elements += index % problem_.batch[axis] * step;
            step *= extents[axis];
        }
        return static_cast<Address>(elements) * element_;
    }
    // In bytes, of the matrices at all places of the outer batch axes.
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
    DataType type_;
    Operands operands_;
    Matrices matrices_;
    size_t element_ = 4;
    size_t workspace_ = 0;
    int rank_ = 0;
    mutable std::mutex mutex_;
    mutable std::optional<Chosen> chosen_;
};

// What cuBLAS itself takes by default: more helps only Hopper and its successors, and none pays
// that is far larger than the result, whose parts it holds.
size_t workspace_of(const CardDescription& card, const Type& y, size_t limit) {
    const size_t most = size_t{card.arch >= 90 ? 32u : 4u} << 20;
    const size_t parts = static_cast<size_t>(y.numel()) * sizeof(float) * 16;
    return std::min({most, limit, (parts + 255) / 256 * 256});
}

std::string key_of(const Library& library, const OpCall& call, const CardDescription& card,
                   Compute compute, bool copies, size_t workspace) {
    std::string key = cat("cuBLASLt\nalgorithm of ", library.version(), " for sm_", card.arch,
                          " x ", card.multiprocessors, compute == Compute::tf32 ? ", tf32, " : ", ",
                          copies ? "rows copied, " : "", workspace, " bytes\n", call.op.name);
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
    const std::optional<Steps> steps = steps_of(p);
    if (!steps) return refuse("cuBLASLt does relu last");
    for (const Type& type : call.inputs)
        if (is_packed(type.layout))
            return refuse(cat("cuBLASLt does not know the layout of ", to_string(type)));
    const Library* library = Library::find(why_not);
    if (!library) return nullptr;
    const Compute compute = options.tf32 && y.dtype == DType::f32 ? Compute::tf32 : Compute::f32;
    const size_t workspace = workspace_of(card, y, options.workspace_limit);
    const Operands operands = operands_of(p, y, compute, !steps->addend);
    const auto made = [&](int rank, std::optional<Chosen> chosen) {
        return std::make_unique<MatmulProduct>(*library, call, p, *steps, operands, compute,
                                               workspace, rank, chosen);
    };
    try {
        const std::string key =
            key_of(*library, call, card, compute, operands.any_copy(), workspace);
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
            } catch (const DeviceError&) { break; }  // it proposes no more
        }
        if (best) cache_plan(key, {reinterpret_cast<const char*>(&*best), sizeof *best});
        return made(0, best);
    } catch (const DeviceError& error) { return refuse(error.what()); }
}

}  // namespace megjit::cuda::cublaslt
