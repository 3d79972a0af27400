// runtime/core/uploads.h -- Uploads: data that travel to a device beside its work.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "runtime/core/device.h"
#include "runtime/core/stream.h"
#include "runtime/core/tensor.h"

namespace megjit::runtime {

// A value that is on its way to a device, on the device's stream for copies.
class Upload {
public:
    Upload(TensorRef value, Ticket ticket) : value_(std::move(value)), ticket_(ticket) {}
    Upload(Upload&&) = default;
    Upload& operator=(Upload&&) = delete;
    ~Upload() { take(); }  // waits: work queued next may use the value's memory again
    // Returns the value; work given to the device from now on finds it there. Call once.
    TensorRef take() {
        if (value_ && ticket_)
            value_->device().stream().wait(value_->device().copy_stream(), ticket_);
        return std::exchange(value_, {});
    }

private:
    TensorRef value_;
    Ticket ticket_ = 0;
};

// The uploads of one caller. They reuse host memory that copies reach without a detour.
class Uploads {
public:
    explicit Uploads(Device& device) : device_(device) {}
    ~Uploads();
    Uploads(const Uploads&) = delete;

    // Begins to copy `data`, which may change when this returns. Does not wait for the device.
    Upload begin(const Type& type, const void* data);

private:
    struct Buffer {
        std::shared_ptr<std::byte[]> memory;
        size_t bytes = 0;
        Ticket ticket = 0;  // ticket of the copy that reads it
    };
    Buffer free_buffer(size_t bytes);
    Device& device_;
    std::deque<Buffer> buffers_;  // by ticket
};

}  // namespace megjit::runtime
