// backends/emulated/ -- an accelerator that is none: memory that the host cannot touch, streams
// that run later, on threads of their own, and the kernels of another device. What forgets to wait,
// or follows a pointer of the device on the host, crashes or gives wrong numbers here, without a
// card.
//
// backends/emulated/device_memory.h -- one file, mapped twice: where values are said to lie nothing
// can be read or written; the streams' threads use the other mapping.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/page_source.h"

namespace megjit::emulated {

class DeviceMemory {
public:
    // Throws DeviceError when the system refuses. Pages are taken when they are first written.
    explicit DeviceMemory(size_t bytes);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;

    bool holds(const void* published) const;
    // Where a stream's thread finds what lies at `published`; null stays null. InternalError for
    // addresses outside of the device.
    void* on_host(const void* published) const;

    void* map(size_t bytes);  // page-aligned; null when the device is full
    void unmap(void* published, size_t bytes) noexcept;
    size_t free_bytes();

private:
    size_t bytes_;
    int file_ = -1;
    int process_;
    std::byte *published_ = nullptr, *alias_ = nullptr;
    std::mutex mutex_;
    std::map<size_t, size_t> free_;  // by offset: bytes
};

}  // namespace megjit::emulated
