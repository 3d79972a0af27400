#include "runtime/core/uploads.h"

#include <algorithm>
#include <cstring>

namespace megjit::runtime {

Uploads::~Uploads() {
    if (buffers_.empty()) return;
    try {
        device_.copy_stream().synchronize(buffers_.back().ticket);
    } catch (const std::exception&) {}  // readers of the values get the error
}

Uploads::Buffer Uploads::free_buffer(size_t bytes) {
    const auto is_free = [this](const Buffer& buffer) {
        return device_.copy_stream().is_past(buffer.ticket);
    };
    const auto found = std::ranges::find_if(
        buffers_, [&](const Buffer& buffer) { return buffer.bytes >= bytes && is_free(buffer); });
    if (found == buffers_.end()) {
        std::erase_if(buffers_, is_free);  // free buffers that are too small
        return {device_.host_memory(bytes), bytes};
    }
    Buffer buffer = std::move(*found);
    buffers_.erase(found);
    return buffer;
}

Upload Uploads::begin(const Type& type, const void* data) {
    const size_t bytes = type.bytes();
    Stream& copies = device_.copy_stream();
    if (copies.is_inline() || bytes == 0) return {tensor_from_host(device_, type, data), 0};
    Buffer buffer = free_buffer(bytes);
    std::memcpy(buffer.memory.get(), data, bytes);
    TensorRef value = empty_tensor(device_, type);
    // Work queued before may still use the value's memory.
    copies.wait(device_.stream(), device_.stream().record());
    copies.upload(value->data(), buffer.memory.get(), bytes, true);
    buffer.ticket = copies.record();
    const Ticket ticket = buffer.ticket;
    buffers_.push_back(std::move(buffer));
    return {std::move(value), ticket};
}

}  // namespace megjit::runtime
