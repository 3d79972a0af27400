// backends/cuda/products/cudnn_api.h -- what we call of libcudnn.so.9, with prototypes and numbers
// of our own. Source: NVIDIA, "cuDNN backend API"; names here are the library's without CUDNN_.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megjit::cuda::cudnn {

using Status = int;  // 0 is success
using Handle = struct OpaqueCudnn*;
using RawDescriptor = void*;

// Types of an attribute's values.
enum class Tag : int {
    handle = 0,
    data_type = 1,
    boolean = 2,
    int64 = 3,
    real32 = 4,
    real64 = 5,
    pointer = 6,
    convolution_mode = 7,
    heuristic_mode = 8,
    nan_propagation = 10,
    numerical_note = 11,
    pointwise_mode = 14,
    descriptor = 15,
    sums_mode = 16,
    reduce_mode = 18,
    resample_mode = 21,
    padding_mode = 22,
    text = 24,
    norm_mode = 27,
    norm_phase = 28,
};

enum class Kind : int {  // kinds of descriptors
    pointwise = 0,
    convolution = 1,
    engine = 2,
    engine_config = 3,
    heuristic = 4,
    plan = 5,
    conv_forward = 10,
    conv_filter = 11,
    conv_data = 12,
    pointwise_op = 13,
    sums_op = 14,
    graph = 15,
    variant_pack = 16,
    tensor = 17,
    matmul = 18,
    matmul_op = 19,
    reduction = 21,
    reduction_op = 22,
    resample = 24,
    resample_forward = 25,
    resample_backward = 26,
    norm_forward = 29,
    norm_backward = 30,
    reshape_op = 31,
    device = 38,
};

enum class DataType : int { f32 = 0, f16 = 2, i8 = 3, i32 = 4, bf16 = 9, b1 = 11 };
enum class ConvolutionMode : int { cross_correlation = 1 };
enum class HeuristicMode : int { fallback = 2, a = 3 };
enum class NumericalNote : int {
    tensor_core = 0,
    down_converts_inputs = 1,
    reduces_precision = 2,
    nondeterministic = 4,
    count = 10,
};
enum class PointwiseMode : int {
    add = 0,
    mul = 1,
    max = 3,
    div = 6,
    sub = 9,
    exp = 13,
    log = 15,
    rsqrt = 17,
    identity = 21,
    reciprocal = 22,
    relu = 100,
    relu_gradient = 200,
    greater_equal = 303,
    coordinate = 501,
    select = 601,
};
enum class SumsMode : int { elements_and_squares = 0 };
enum class ReduceMode : int { sum = 0, max = 3 };
enum class ResampleMode : int { mean_with_padding = 2, max = 3, mean = 4 };
enum class PaddingMode : int { zero = 0, negative_infinity = 1 };
enum class NanPropagation : int { no = 0, yes = 1 };
enum class NormMode : int { layer = 0, batch = 2 };
enum class NormPhase : int { inference = 0, training = 1 };

// Names of attributes.
enum Attribute : int {
    kPointwiseMode = 0,
    kPointwiseMath = 1,
    kPointwiseNan = 2,
    kPointwiseAxis = 9,
    kConvolutionMath = 100,
    kConvolutionMode = 101,
    kConvolutionDilations = 102,
    kConvolutionStrides = 103,
    kConvolutionPaddingAfter = 104,
    kConvolutionPaddingBefore = 105,
    kConvolutionDims = 106,
    kHeuristicMode = 200,
    kHeuristicGraph = 201,
    kHeuristicResults = 202,
    kHeuristicDevice = 204,
    kConfigEngine = 300,
    kPlanConfig = 401,
    kPlanWorkspace = 402,
    kPlanText = 405,
    kPlanDevice = 407,
    // The attributes of each of the three convolutions are alpha, beta, description, w, x, y.
    kConvForward = 700,
    kConvData = 706,
    kConvFilter = 712,
    kPointwiseDescription = 750,
    kPointwiseX = 751,
    kPointwiseB = 752,
    kPointwiseY = 753,
    kPointwiseDx = 756,
    kPointwiseDy = 757,
    kPointwiseT = 758,
    kSumsMode = 770,
    kSumsMath = 771,
    kSumsX = 772,
    kSumsOfElements = 773,
    kSumsOfSquares = 774,
    kGraphOperations = 801,
    kTensorAlignment = 900,
    kTensorType = 901,
    kTensorDims = 902,
    kTensorStrides = 903,
    kTensorId = 906,
    kTensorIsVirtual = 907,
    kTensorIsByValue = 908,
    kPackIds = 1000,
    kPackPointers = 1001,
    kPackWorkspace = 1003,
    kEngineIndex = 1301,
    kEngineNotes = 1303,
    kMatmulMath = 1500,
    kMatmulA = 1520,
    kMatmulB = 1521,
    kMatmulC = 1522,
    kMatmulDescription = 1523,
    kReductionMode = 1600,
    kReductionMath = 1601,
    kReductionX = 1610,
    kReductionY = 1611,
    kReductionDescription = 1612,
    kResampleMode = 1700,
    kResampleMath = 1701,
    kResampleDims = 1702,
    kResamplePaddingAfter = 1703,
    kResamplePaddingBefore = 1704,
    kResampleStrides = 1705,
    kResampleWindow = 1706,
    kResampleNan = 1707,
    kResamplePadding = 1708,
    kResampleForwardX = 1710,
    kResampleForwardY = 1711,
    kResampleForwardIndex = 1712,
    kResampleForwardDescription = 1716,
    kResampleBackwardDx = 1720,
    kResampleBackwardDy = 1721,
    kResampleBackwardIndex = 1722,
    kResampleBackwardDescription = 1725,
    kResampleBackwardX = 1726,
    kResampleBackwardY = 1727,
    kNormForwardMode = 2000,
    kNormForwardPhase = 2001,
    kNormForwardX = 2002,
    kNormForwardMean = 2003,
    kNormForwardRstd = 2004,
    kNormForwardScale = 2005,
    kNormForwardBias = 2006,
    kNormForwardEps = 2007,
    kNormForwardY = 2013,
    kNormBackwardMode = 2100,
    kNormBackwardX = 2101,
    kNormBackwardMean = 2102,
    kNormBackwardRstd = 2103,
    kNormBackwardDy = 2104,
    kNormBackwardScale = 2105,
    kNormBackwardDscale = 2107,
    kNormBackwardDbias = 2108,
    kNormBackwardDx = 2109,
    kReshapeX = 2200,
    kReshapeY = 2201,
    kDeviceText = 2702,
};

// X(name in the library, our name, result, parameters)
// clang-format off
#define MEGJIT_CUDNN_FUNCTIONS(X) \
    X(cudnnGetErrorString, error_text, const char*, (Status)) \
    X(cudnnGetLastErrorString, last_error, void, (char* text, size_t bytes)) \
    X(cudnnCreate, create, Status, (Handle*)) \
    X(cudnnDestroy, destroy, Status, (Handle)) \
    X(cudnnSetStream, set_stream, Status, (Handle, void* stream)) \
    X(cudnnBackendCreateDescriptor, create_descriptor, Status, (Kind, RawDescriptor*)) \
    X(cudnnBackendDestroyDescriptor, destroy_descriptor, Status, (RawDescriptor)) \
    X(cudnnBackendSetAttribute, set, Status, (RawDescriptor, int name, Tag, int64_t count, const void* values)) \
    X(cudnnBackendGetAttribute, get, Status, (RawDescriptor, int name, Tag, int64_t room, int64_t* count, void* values)) \
    X(cudnnBackendFinalize, finalize, Status, (RawDescriptor)) \
    X(cudnnBackendExecute, execute, Status, (Handle, RawDescriptor plan, RawDescriptor variant_pack))
// clang-format on

}  // namespace megjit::cuda::cudnn
