// backends/cuda/gpu.h -- one GPU: its context, a stream, memory, time.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "backends/cuda/driver.h"

namespace megjit::cuda {

// All work is queued on one stream, in order. Any thread may call; every failure is a DeviceError.
class Gpu {
public:
    Gpu(const CudaDriver& driver, int ordinal = 0);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    const std::string& name() const { return name_; }
    int arch() const { return arch_; }  // 90 is sm_90
    Stream stream() const { return stream_; }
    const CudaDriver& driver() const { return driver_; }
    // A context is current to a thread: called before the driver is, by whoever calls it.
    void make_current() const;
    void try_to_make_current() const noexcept {
        driver_.call().set_context(context_);
    }  // where nothing may be thrown

    Address allocate(size_t bytes) const;
    void free(Address address) const;
    void upload(Address to, const void* from, size_t bytes) const;
    void download(void* to, Address from, size_t bytes) const;  // waits for all that was queued
    void clear(Address address, size_t bytes) const;
    void synchronize() const;
    // What the GPU takes for all that `queue` queues, in milliseconds.
    float milliseconds(const std::function<void()>& queue) const;

private:
    const CudaDriver& driver_;
    DeviceId device_ = 0;
    Context context_ = nullptr;
    Stream stream_ = nullptr;
    std::string name_;
    int arch_ = 0;
};

// Memory of a GPU, owned.
class Buffer {
public:
    Buffer(const Gpu& gpu, size_t bytes) : gpu_(&gpu), address_(gpu.allocate(bytes)) {}
    Buffer(Buffer&& other) noexcept
        : gpu_(other.gpu_), address_(std::exchange(other.address_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(gpu_, other.gpu_);
        std::swap(address_, other.address_);
        return *this;
    }
    ~Buffer() {
        if (address_) gpu_->free(address_);
    }
    Address address() const { return address_; }

private:
    const Gpu* gpu_;
    Address address_;
};

}  // namespace megjit::cuda
