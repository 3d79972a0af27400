#include "runtime/core/host_view.h"

#include "runtime/core/device.h"

namespace megjit::runtime {

HostView::HostView(const TensorRef& tensor) : pins_({&tensor, 1}) {
    if (!tensor->storage()) return;  // it is a placeholder without elements
    const Storage& storage = *tensor->storage();
    Device& device = storage.device();
    Stream& stream = device.stream();
    data_ = storage.data();
    if (device.is_host()) return;
    const size_t bytes = tensor->type().bytes();
    copy_.reset(new std::byte[bytes]);
    while (bytes) {
        stream.download(copy_.get(), data_, bytes);
        const Ticket copied = stream.record();
        stream.synchronize(copied);
        stream.refuse_lost(storage.ready());
        if (!stream.loss(copied)) break;  // if not, another thread met a failure meanwhile
    }
    data_ = copy_.get();
}

}  // namespace megjit::runtime
