// backends/cuda/nccl/nccl_api.h -- what we call of libnccl.so.2, with prototypes and numbers of our
// own. Source: NVIDIA, "NCCL API"; names here are the library's without nccl.
#pragma once

#include <cstddef>

#include "backends/cuda/driver.h"
#include "runtime/host/nvidia_libraries.h"

namespace megjit::cuda::nccl {

using Status = int;  // 0 is success
inline constexpr Status kInProgress = 7;
using Comm = struct OpaqueComm*;

struct UniqueId {
    char bytes[128] = {};
};

enum class Type : int { i8 = 0, u8 = 1, i32 = 2, f16 = 6, f32 = 7, bf16 = 9 };
enum class Reduction : int { sum = 0, prod = 1, max = 2, min = 3 };

// ncclConfig_t as NCCL 2.14 had it: later versions recognise it by size and version.
struct Config {
    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21400;
    int blocking = 0;  // calls return at once, so that a waiting thread can give up
};

// X(name in the library, our name, result, parameters)
// clang-format off
#define MEGJIT_NCCL_FUNCTIONS(X) \
    X(ncclGetErrorString, error_text, const char*, (Status)) \
    X(ncclGetLastError, last_error, const char*, (Comm)) \
    X(ncclGetUniqueId, unique_id, Status, (UniqueId*)) \
    X(ncclCommInitRankConfig, connect, Status, (Comm*, int size, UniqueId, int rank, Config*)) \
    X(ncclCommGetAsyncError, state, Status, (Comm, Status* state)) \
    X(ncclCommAbort, abort, Status, (Comm)) \
    X(ncclGroupStart, begin_group, Status, ()) \
    X(ncclGroupEnd, end_group, Status, ()) \
    X(ncclAllReduce, all_reduce, Status, (const void* in, void* out, size_t count, Type, Reduction, Comm, StreamHandle)) \
    X(ncclReduce, reduce, Status, (const void* in, void* out, size_t count, Type, Reduction, int root, Comm, StreamHandle)) \
    X(ncclReduceScatter, reduce_scatter, Status, (const void* in, void* out, size_t count, Type, Reduction, Comm, StreamHandle)) \
    X(ncclBroadcast, broadcast, Status, (const void* in, void* out, size_t count, Type, int root, Comm, StreamHandle)) \
    X(ncclAllGather, all_gather, Status, (const void* in, void* out, size_t count, Type, Comm, StreamHandle)) \
    X(ncclSend, send, Status, (const void* in, size_t count, Type, int peer, Comm, StreamHandle)) \
    X(ncclRecv, receive, Status, (void* out, size_t count, Type, int peer, Comm, StreamHandle))
// clang-format on

// The library, opened at run time.
class Library {
public:
    // Null, with the reason, where NCCL is missing.
    static const Library* find(std::string* why_not);
    explicit Library(const runtime::FoundLibrary& found);

#define MEGJIT_X(symbol, name, result, parameters) result(*name) parameters = nullptr;
    MEGJIT_NCCL_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
    const std::string version;  // "2.28.9"
};

}  // namespace megjit::cuda::nccl
