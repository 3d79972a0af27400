// tests/card/emulator/core.h -- results of the driver's calls, as CUDA numbers them, and faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace megjit::card {

using Address = uint64_t;  // in a card's memory

// X(our name, number, name without CUDA_ERROR_, text)
#define MEGJIT_CARD_RESULTS(X) \
    X(invalid_value, 1, "INVALID_VALUE", "invalid argument") \
    X(out_of_memory, 2, "OUT_OF_MEMORY", "out of memory") \
    X(not_initialized, 3, "NOT_INITIALIZED", "initialization error") \
    X(deinitialized, 4, "DEINITIALIZED", "driver shutting down") \
    X(no_device, 100, "NO_DEVICE", "no CUDA-capable device is detected") \
    X(invalid_device, 101, "INVALID_DEVICE", "invalid device ordinal") \
    X(invalid_image, 200, "INVALID_IMAGE", "device kernel image is invalid") \
    X(invalid_context, 201, "INVALID_CONTEXT", "invalid device context") \
    X(no_binary_for_gpu, 209, "NO_BINARY_FOR_GPU", \
      "no kernel image is available for execution on the device") \
    X(peer_access_unsupported, 217, "PEER_ACCESS_UNSUPPORTED", \
      "peer access is not supported between these two devices") \
    X(invalid_ptx, 218, "INVALID_PTX", "a PTX JIT compilation failed") \
    X(unsupported_ptx_version, 222, "UNSUPPORTED_PTX_VERSION", \
      "the provided PTX was compiled with an unsupported toolchain.") \
    X(file_not_found, 301, "FILE_NOT_FOUND", "file not found") \
    X(operating_system, 304, "OPERATING_SYSTEM", \
      "OS call failed or operation not supported on this OS") \
    X(invalid_handle, 400, "INVALID_HANDLE", "invalid resource handle") \
    X(illegal_state, 401, "ILLEGAL_STATE", \
      "the operation cannot be performed in the present state") \
    X(not_found, 500, "NOT_FOUND", "named symbol not found") \
    X(not_ready, 600, "NOT_READY", "device not ready") \
    X(illegal_address, 700, "ILLEGAL_ADDRESS", "an illegal memory access was encountered") \
    X(launch_out_of_resources, 701, "LAUNCH_OUT_OF_RESOURCES", \
      "too many resources requested for launch") \
    X(launch_timeout, 702, "LAUNCH_TIMEOUT", "the launch timed out and was terminated") \
    X(peer_access_already_enabled, 704, "PEER_ACCESS_ALREADY_ENABLED", \
      "peer access is already enabled") \
    X(peer_access_not_enabled, 705, "PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled") \
    X(assert_failed, 710, "ASSERT", "device-side assert triggered") \
    X(host_memory_already_registered, 712, "HOST_MEMORY_ALREADY_REGISTERED", \
      "part or all of the requested memory range is already mapped") \
    X(host_memory_not_registered, 713, "HOST_MEMORY_NOT_REGISTERED", \
      "pointer does not correspond to a registered memory region") \
    X(illegal_instruction, 715, "ILLEGAL_INSTRUCTION", "an illegal instruction was encountered") \
    X(misaligned_address, 716, "MISALIGNED_ADDRESS", "misaligned address") \
    X(invalid_address_space, 717, "INVALID_ADDRESS_SPACE", \
      "operation not supported on global/shared address space") \
    X(launch_failed, 719, "LAUNCH_FAILED", "unspecified launch failure") \
    X(not_permitted, 800, "NOT_PERMITTED", "operation not permitted") \
    X(not_supported, 801, "NOT_SUPPORTED", "operation not supported") \
    X(capture_unsupported, 900, "STREAM_CAPTURE_UNSUPPORTED", \
      "operation not permitted when stream is capturing") \
    X(capture_invalidated, 901, "STREAM_CAPTURE_INVALIDATED", \
      "operation failed due to a previous error during capture") \
    X(capture_merge, 902, "STREAM_CAPTURE_MERGE", \
      "operation would result in a merge of separate capture sequences") \
    X(capture_unmatched, 903, "STREAM_CAPTURE_UNMATCHED", \
      "capture was not ended in the same stream as it began") \
    X(capture_unjoined, 904, "STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work") \
    X(capture_isolation, 905, "STREAM_CAPTURE_ISOLATION", \
      "dependency created on uncaptured work in another stream") \
    X(capture_implicit, 906, "STREAM_CAPTURE_IMPLICIT", \
      "operation would make the legacy stream depend on a capturing blocking stream") \
    X(captured_event, 907, "CAPTURED_EVENT", \
      "operation not permitted on an event last recorded in a capturing stream") \
    X(capture_wrong_thread, 908, "STREAM_CAPTURE_WRONG_THREAD", \
      "attempt to terminate a thread-local capture sequence from another thread") \
    X(graph_update_failure, 910, "GRAPH_EXEC_UPDATE_FAILURE", \
      "the graph update was not performed because it included changes which violated " \
      "constraints specific to instantiated graph update") \
    X(unknown, 999, "UNKNOWN", "unknown error")

enum class Result : int {
    success = 0,
#define MEGJIT_X(ours, number, name, text) ours = number,
    MEGJIT_CARD_RESULTS(MEGJIT_X)
#undef MEGJIT_X
};

// What a driver's call returns, or what stops a card. The text is told by megjit_card_last_fault.
class Fault : public std::exception {
public:
    explicit Fault(Result result, std::string text = {}) : result(result), text(std::move(text)) {}
    const char* what() const noexcept override { return text.c_str(); }

    Result result;
    std::string text;
};

struct Dim3 {
    uint32_t x = 1, y = 1, z = 1;
    uint64_t count() const { return uint64_t{x} * y * z; }
    bool operator==(const Dim3&) const = default;
};

// printf to a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

}  // namespace megjit::card
