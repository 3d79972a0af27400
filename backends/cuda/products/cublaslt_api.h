// backends/cuda/products/cublaslt_api.h -- what we call of libcublasLt, with prototypes and numbers
// of our own. Source: NVIDIA, "cuBLAS", section cuBLASLt API.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megjit::cuda::cublaslt {

using Status = int;  // 0 is success
using Handle = struct OpaqueCublasLt*;
using MatmulDescriptor = struct OpaqueMatmul*;
using LayoutDescriptor = struct OpaqueLayout*;
using PreferenceDescriptor = struct OpaquePreference*;

enum class DataType : int { f32 = 0, f16 = 2, bf16 = 14 };
enum class Compute : int { f32 = 68, tf32 = 77 };
enum class Transpose : int32_t { no = 0, yes = 1 };
// sums_a and sums_b (BGRADA, BGRADB) write the sums of a factor over the summed axis to the bias.
enum class Epilogue : uint32_t {
    none = 1,
    relu = 2,
    bias = 4,
    relu_bias = 6,
    sums_a = 256,
    sums_b = 512
};

// Names of attributes.
enum MatmulAttribute : int { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8 };
enum LayoutAttribute : int { kBatchCount = 5, kBatchStride = 6 };
enum PreferenceAttribute : int {
    kMaxWorkspace = 1,
    kAlignmentA = 5,
    kAlignmentB = 6,
    kAlignmentC = 7,
    kAlignmentD = 8,
};

struct Algorithm {
    uint64_t data[8] = {};
};
struct Proposal {
    Algorithm algorithm;
    size_t workspace_bytes = 0;
    Status state = 0;
    float waves = 0;
    int reserved[4] = {};
};

// X(name in the library, our name, result, parameters)
// clang-format off
#define MEGJIT_CUBLASLT_FUNCTIONS(X) \
    X(cublasLtGetStatusString, error_text, const char*, (Status)) \
    X(cublasLtCreate, create, Status, (Handle*)) \
    X(cublasLtDestroy, destroy, Status, (Handle)) \
    X(cublasLtMatmulDescCreate, create_matmul, Status, (MatmulDescriptor*, Compute, DataType scale)) \
    X(cublasLtMatmulDescDestroy, destroy_matmul, Status, (MatmulDescriptor)) \
    X(cublasLtMatmulDescSetAttribute, set_matmul, Status, (MatmulDescriptor, int name, const void* value, size_t bytes)) \
    X(cublasLtMatrixLayoutCreate, create_layout, Status, (LayoutDescriptor*, DataType, uint64_t rows, uint64_t columns, int64_t leading)) \
    X(cublasLtMatrixLayoutDestroy, destroy_layout, Status, (LayoutDescriptor)) \
    X(cublasLtMatrixLayoutSetAttribute, set_layout, Status, (LayoutDescriptor, int name, const void* value, size_t bytes)) \
    X(cublasLtMatmulPreferenceCreate, create_preference, Status, (PreferenceDescriptor*)) \
    X(cublasLtMatmulPreferenceDestroy, destroy_preference, Status, (PreferenceDescriptor)) \
    X(cublasLtMatmulPreferenceSetAttribute, set_preference, Status, (PreferenceDescriptor, int name, const void* value, size_t bytes)) \
    X(cublasLtMatmulAlgoGetHeuristic, propose, Status, (Handle, MatmulDescriptor, LayoutDescriptor a, LayoutDescriptor b, LayoutDescriptor c, LayoutDescriptor d, PreferenceDescriptor, int room, Proposal*, int* count)) \
    X(cublasLtMatmul, matmul, Status, (Handle, MatmulDescriptor, const void* alpha, const void* a, LayoutDescriptor, const void* b, LayoutDescriptor, const void* beta, const void* c, LayoutDescriptor, void* d, LayoutDescriptor, const Algorithm*, void* workspace, size_t workspace_bytes, void* stream))
// clang-format on

}  // namespace megjit::cuda::cublaslt
