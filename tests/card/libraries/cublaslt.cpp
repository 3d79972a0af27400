// tests/card/libraries/cublaslt.cpp -- a library with cuBLASLt's ABI: those of its functions that
// we call. What it checks beside library.h:
//   L1 a matrix has a known type, and its columns are as far apart as they are long
//   L2 the factors of a product go together, C is as D is
//   L3 an algorithm is one that was proposed for this product, by this library
//   L4 addresses have the alignment that the algorithm was asked for
//   L5 an epilogue with a bias has one, and one that writes sums has a place for them
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backends/cuda/products/cublaslt_api.h"
#include "tests/card/libraries/host_op.h"
#include "tests/card/libraries/library.h"

namespace megjit::cuda::cublaslt {

struct OpaqueCublasLt {
    card_libraries::Home home;
};
struct OpaqueMatmul {
    Compute compute;
    Transpose a = Transpose::no, b = Transpose::no;
    Epilogue epilogue = Epilogue::none;
    const void* bias = nullptr;
};
struct OpaqueLayout {
    DataType type;
    int64_t rows, columns, leading;
    int32_t batch = 1;
    int64_t step = 0;  // elements
    bool operator==(const OpaqueLayout&) const = default;
};
struct OpaquePreference {
    uint64_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

using namespace card_libraries;

constexpr int kNotInitialized = 1, kInvalidValue = 7, kInternal = 14, kNotSupported = 15;
constexpr int kVersion = 139999;  // 13.99.99: no real library has the plans of this one
constexpr uint64_t kMark = 0x6d65676a69742e31;
constexpr int kProposals = 3;

Live& live() {
    static auto& all = *new Live(kInvalidValue);
    return all;
}
template <class T>
T& checked(T* object, const char* kind) {
    live().expect(object, kind);
    return *object;
}
OpaqueMatmul& checked(MatmulDescriptor d) { return checked(d, "description of a product"); }
OpaqueLayout& checked(LayoutDescriptor d) { return checked(d, "layout"); }
OpaquePreference& checked(PreferenceDescriptor d) { return checked(d, "preference"); }
OpaqueCublasLt& checked(Handle handle) {
    checked(handle, "handle").home.check_current(kNotInitialized);
    return *handle;
}

template <class T>
void take(T& to, const void* value, size_t bytes, int name) {
    if (!value || bytes != sizeof to)
        throw Misuse(kInvalidValue,
                     cat("attribute ", name, " has ", sizeof to, " bytes, not ", bytes));
    std::memcpy(&to, value, bytes);
}

Element element(DataType type) {
    switch (type) {
        case DataType::f32: return Element::f32;
        case DataType::f16: return Element::f16;
        case DataType::bf16: return Element::bf16;
    }
    throw Misuse(kNotSupported, cat("type ", static_cast<int>(type)));
}

// Rule L2.
struct Product {
    Product(const OpaqueMatmul& d, const OpaqueLayout& a, const OpaqueLayout& b,
            const OpaqueLayout& c, const OpaqueLayout& y)
        : descriptor(d), a(a), b(b), y(y) {
        const bool ta = d.a == Transpose::yes, tb = d.b == Transpose::yes;
        m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
        n = tb ? b.rows : b.columns;
        const int64_t kb = tb ? b.columns : b.rows;
        if (k != kb || m != y.rows || n != y.columns)
            throw Misuse(kInvalidValue, cat("a product of ", m, " x ", k, " and ", kb, " x ", n,
                                            " gives no ", y.rows, " x ", y.columns));
        if (a.batch != y.batch || b.batch != y.batch || a.type != y.type || b.type != y.type)
            throw Misuse(kInvalidValue, "the matrices differ in their types or numbers");
        if (c != y) throw Misuse(kInvalidValue, "C lies otherwise than D");
        if (y.batch > 1 && y.step < y.leading * (y.columns - 1) + y.rows)
            throw Misuse(kInvalidValue, "the matrices of D overlap");
    }
    uint64_t hash() const {
        uint64_t seed = kMark;
        for (const OpaqueLayout* l : {&a, &b, &y})
            for (const int64_t part : {static_cast<int64_t>(l->type), l->rows, l->columns,
                                       l->leading, int64_t{l->batch}, l->step})
                seed = (seed ^ static_cast<uint64_t>(part)) * 0x100000001b3;
        for (const int part :
             {static_cast<int>(descriptor.compute), static_cast<int>(descriptor.a),
              static_cast<int>(descriptor.b), static_cast<int>(descriptor.epilogue)})
            seed = (seed ^ static_cast<uint64_t>(part)) * 0x100000001b3;
        return seed;
    }
    bool has_bias() const {
        return descriptor.epilogue == Epilogue::bias || descriptor.epilogue == Epilogue::relu_bias;
    }
    bool writes_sums() const {
        return descriptor.epilogue == Epilogue::sums_a || descriptor.epilogue == Epilogue::sums_b;
    }
    bool has_relu() const {
        return descriptor.epilogue == Epilogue::relu || descriptor.epilogue == Epilogue::relu_bias;
    }
    OpaqueMatmul descriptor;
    OpaqueLayout a, b, y;
    int64_t m = 0, n = 0, k = 0;
};

// As it lies in the caller's Algorithm.
struct Chosen {
    uint64_t mark = 0, product = 0, workspace = 0, rank = 0;
    uint32_t alignment[4] = {};
};
static_assert(sizeof(Chosen) <= sizeof(Algorithm));

Dims dims_of(const OpaqueLayout& l) { return {l.batch, l.columns, l.rows}; }
Dims strides_of(const OpaqueLayout& l) { return {l.step, l.leading, 1}; }
Array load(const std::byte* memory, const OpaqueLayout& l, Compute compute) {
    Array array = gather(memory, element(l.type), dims_of(l), strides_of(l));
    if (compute == Compute::tf32) round_to_tf32(array);
    return array;
}

// The sums of a factor over the axis that the product sums over, in its order.
Array sums_of(const Array& factor, const OpaqueLayout& l, bool over_rows) {
    const int64_t count = over_rows ? l.columns : l.rows, length = over_rows ? l.rows : l.columns;
    Array sums = Array::of({count});
    for (int64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int64_t j = 0; j < length; ++j)
            sum += factor[over_rows ? i * l.rows + j : j * l.rows + i];
        sums[i] = sum;
    }
    return sums;
}

// D^T of row-major [batch, n, m] is op(B)^T op(A)^T: columns first is rows first, transposed.
void multiply(const Product& p, float alpha, float beta, const std::vector<std::byte*>& places) {
    const OpaqueMatmul& d = p.descriptor;
    const Array a = load(places[0], p.a, d.compute), b = load(places[1], p.b, d.compute);
    Array y = card_libraries::compute(
        "matmul", {&b, &a}, {int64_t{d.b == Transpose::yes}, int64_t{d.a == Transpose::yes}});
    const Array c = beta != 0 ? load(places[2], p.y, Compute::f32) : Array{};
    const Array bias = p.has_bias() ? gather(places[5], element(p.y.type), {p.m}, {1}) : Array{};
    for (int64_t i = 0; i < count_of(y.dims); ++i) {
        float value = alpha * y[i];
        if (beta != 0) value += beta * c[i];
        if (p.has_bias()) value += bias[i % p.m];
        if (p.has_relu() && value < 0) value = 0;
        y[i] = value;
    }
    scatter(y, places[3], element(p.y.type), strides_of(p.y));
    if (d.epilogue == Epilogue::sums_a)
        scatter(sums_of(a, p.a, d.a == Transpose::yes), places[5], element(p.y.type), {1});
    if (d.epilogue == Epilogue::sums_b)
        scatter(sums_of(b, p.b, d.b == Transpose::no), places[5], element(p.y.type), {1});
}

}  // namespace

MEGJIT_LIBRARY_API const char* cublasLtGetStatusString(Status status) {
    static thread_local std::string text;
    text = cat(status == kInvalidValue     ? "CUBLAS_STATUS_INVALID_VALUE"
               : status == kNotSupported   ? "CUBLAS_STATUS_NOT_SUPPORTED"
               : status == kNotInitialized ? "CUBLAS_STATUS_NOT_INITIALIZED"
                                           : "CUBLAS_STATUS_INTERNAL_ERROR",
               ": ", last_error());
    return text.c_str();
}

MEGJIT_LIBRARY_API Status cublasLtCreate(Handle* handle) {
    return call(kInternal, [&] {
        *handle = new OpaqueCublasLt{Home(kNotInitialized)};
        live().add(*handle, "handle");
    });
}
MEGJIT_LIBRARY_API Status cublasLtDestroy(Handle handle) {
    return call(kInternal, [&] {
        checked(handle);
        live().remove(handle, "handle");
        delete handle;
    });
}

MEGJIT_LIBRARY_API Status cublasLtMatmulDescCreate(MatmulDescriptor* made, Compute compute,
                                                   DataType scale) {
    return call(kInternal, [&] {
        if ((compute != Compute::f32 && compute != Compute::tf32) || scale != DataType::f32)
            throw Misuse(kNotSupported, "products are computed in float32 or TF32");
        *made = new OpaqueMatmul{compute};
        live().add(*made, "description of a product");
    });
}
MEGJIT_LIBRARY_API Status cublasLtMatmulDescDestroy(MatmulDescriptor d) {
    return call(kInternal, [&] {
        live().remove(d, "description of a product");
        delete d;
    });
}
MEGJIT_LIBRARY_API Status cublasLtMatmulDescSetAttribute(MatmulDescriptor descriptor, int name,
                                                         const void* value, size_t bytes) {
    return call(kInternal, [&] {
        OpaqueMatmul& d = checked(descriptor);
        switch (name) {
            case kTransposeA: return take(d.a, value, bytes, name);
            case kTransposeB: return take(d.b, value, bytes, name);
            case kEpilogue: return take(d.epilogue, value, bytes, name);
            case kBiasPointer: return take(d.bias, value, bytes, name);
            default: throw Misuse(kInvalidValue, cat("a product has no attribute ", name));
        }
    });
}

MEGJIT_LIBRARY_API Status cublasLtMatrixLayoutCreate(LayoutDescriptor* made, DataType type,
                                                     uint64_t rows, uint64_t columns,
                                                     int64_t leading) {
    return call(kInternal, [&] {
        element(type);
        if (rows == 0 || columns == 0 || leading < static_cast<int64_t>(rows))
            throw Misuse(kInvalidValue, cat("a matrix of ", rows, " x ", columns, ", columns ",
                                            leading, " apart"));
        *made = new OpaqueLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns),
                                 leading};
        live().add(*made, "layout");
    });
}
MEGJIT_LIBRARY_API Status cublasLtMatrixLayoutDestroy(LayoutDescriptor layout) {
    return call(kInternal, [&] {
        live().remove(layout, "layout");
        delete layout;
    });
}
MEGJIT_LIBRARY_API Status cublasLtMatrixLayoutSetAttribute(LayoutDescriptor layout, int name,
                                                           const void* value, size_t bytes) {
    return call(kInternal, [&] {
        OpaqueLayout& l = checked(layout);
        switch (name) {
            case kBatchCount: return take(l.batch, value, bytes, name);
            case kBatchStride: return take(l.step, value, bytes, name);
            default: throw Misuse(kInvalidValue, cat("a layout has no attribute ", name));
        }
    });
}

MEGJIT_LIBRARY_API Status cublasLtMatmulPreferenceCreate(PreferenceDescriptor* made) {
    return call(kInternal, [&] {
        *made = new OpaquePreference;
        live().add(*made, "preference");
    });
}
MEGJIT_LIBRARY_API Status cublasLtMatmulPreferenceDestroy(PreferenceDescriptor preference) {
    return call(kInternal, [&] {
        live().remove(preference, "preference");
        delete preference;
    });
}
MEGJIT_LIBRARY_API Status cublasLtMatmulPreferenceSetAttribute(PreferenceDescriptor preference,
                                                               int name, const void* value,
                                                               size_t bytes) {
    return call(kInternal, [&] {
        OpaquePreference& p = checked(preference);
        if (name == kMaxWorkspace) return take(p.workspace, value, bytes, name);
        if (name < kAlignmentA || name > kAlignmentD)
            throw Misuse(kInvalidValue, cat("a preference has no attribute ", name));
        take(p.alignment[name - kAlignmentA], value, bytes, name);
    });
}

// The faster, the more memory; the last one needs none.
MEGJIT_LIBRARY_API Status cublasLtMatmulAlgoGetHeuristic(Handle handle, MatmulDescriptor descriptor,
                                                         LayoutDescriptor a, LayoutDescriptor b,
                                                         LayoutDescriptor c, LayoutDescriptor d,
                                                         PreferenceDescriptor preference, int room,
                                                         Proposal* proposals, int* count) {
    return call(kInternal, [&] {
        checked(handle);
        const Product product(checked(descriptor), checked(a), checked(b), checked(c), checked(d));
        const OpaquePreference& p = checked(preference);
        if (room < 1) throw Misuse(kInvalidValue, "no proposal is asked for");
        *count = 0;
        for (uint64_t rank = 0; rank < kProposals && *count < room; ++rank) {
            const uint64_t workspace = (kProposals - 1 - rank) * 1024;
            if (workspace > p.workspace) continue;
            Chosen chosen{kMark, product.hash(), workspace, rank};
            for (int i = 0; i < 4; ++i) chosen.alignment[i] = std::min(p.alignment[i], 16u);
            Proposal& proposal = proposals[(*count)++] = {};
            std::memcpy(proposal.algorithm.data, &chosen, sizeof chosen);
            proposal.workspace_bytes = workspace;
        }
    });
}

MEGJIT_LIBRARY_API Status cublasLtMatmul(Handle handle, MatmulDescriptor descriptor,
                                         const void* alpha, const void* a, LayoutDescriptor la,
                                         const void* b, LayoutDescriptor lb, const void* beta,
                                         const void* c, LayoutDescriptor lc, void* d,
                                         LayoutDescriptor ld, const Algorithm* algorithm,
                                         void* workspace, size_t workspace_bytes, void* stream) {
    return call(kInternal, [&] {
        const Home& home = checked(handle).home;
        home.check_stream(kInvalidValue, stream);
        const Product p(checked(descriptor), checked(la), checked(lb), checked(lc), checked(ld));
        if (!alpha || !beta || !algorithm)
            throw Misuse(kInvalidValue, "alpha, beta and the algorithm are no null pointers");
        float factors[2];
        std::memcpy(&factors[0], alpha, sizeof(float)),
            std::memcpy(&factors[1], beta, sizeof(float));
        Chosen chosen;
        std::memcpy(static_cast<void*>(&chosen), algorithm->data, sizeof chosen);
        if (chosen.mark != kMark || chosen.product != p.hash())
            throw Misuse(kInvalidValue, "the algorithm was not proposed for this product");
        if (chosen.workspace > workspace_bytes)
            throw Misuse(kInvalidValue, cat("the algorithm takes ", chosen.workspace,
                                            " bytes of workspace, given are ", workspace_bytes));
        if (p.has_bias() && !p.descriptor.bias)
            throw Misuse(kInvalidValue, "the epilogue adds a bias, and there is none");
        if (p.writes_sums() && !p.descriptor.bias)
            throw Misuse(kInvalidValue, "the epilogue writes sums, and there is no place for them");
        if (p.writes_sums() && p.y.batch > 1)
            throw Misuse(kNotSupported, "sums are of one product, not of a batch");
        const auto matrix = [&](const char* name, const void* at, const OpaqueLayout& l, int which,
                                bool is_written) {
            return Operand{name, at, span_bytes(element(l.type), dims_of(l), strides_of(l)),
                           chosen.alignment[which], is_written};
        };
        std::vector<Operand> operands = {
            matrix("A", a, p.a, 0, false), matrix("B", b, p.b, 1, false),
            matrix("C", c, p.y, 2, false), matrix("D", d, p.y, 3, true),
            Operand{"the workspace", workspace, workspace_bytes, kWorkspaceAlign, true}};
        if (p.has_bias() || p.writes_sums()) {
            const size_t bytes = size_of(element(p.y.type));
            const int64_t count = p.descriptor.epilogue == Epilogue::sums_b ? p.n : p.m;
            operands.push_back({p.writes_sums() ? "the sums" : "the bias", p.descriptor.bias,
                                static_cast<size_t>(count) * bytes, bytes, p.writes_sums()});
        }
        if (factors[1] == 0) operands[2].bytes = 0;  // C is not read
        check_operands(kInvalidValue, operands, home);
        queue(kInternal, stream, cat("cuBLASLt's kernel ", chosen.rank), operands,
              2.0 * static_cast<double>(p.m * p.n * p.k * p.y.batch),
              [p, alpha = factors[0], beta = factors[1]](const std::vector<std::byte*>& places) {
            multiply(p, alpha, beta, places);
        });
    });
}

MEGJIT_LIBRARY_API size_t cublasLtGetVersion() { return kVersion; }

#define MEGJIT_X(symbol, name, result, parameters) \
    static_assert(std::is_same_v<decltype(&symbol), result(*) parameters>);
MEGJIT_CUBLASLT_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X

}  // namespace megjit::cuda::cublaslt
