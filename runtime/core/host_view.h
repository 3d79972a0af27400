// runtime/core/host_view.h -- HostView: how code on the host reads a value, wherever it lies.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/core/rematerializer.h"
#include "runtime/core/tensor.h"

namespace megjit::runtime {

// The bytes of a value in the tensor's layout; the tensor has data. Waits until they are there, and
// copies them where the host cannot read the device's memory. Throws the error of the work that
// should have made them. The value stays in memory while the view lives.
class HostView {
public:
    explicit HostView(const TensorRef& tensor);
    const void* data() const { return data_; }
    template <class T>
    const T* as() const {
        return static_cast<const T*>(data_);
    }

private:
    Pins pins_;
    std::unique_ptr<std::byte[]> copy_;
    const void* data_ = nullptr;
};

}  // namespace megjit::runtime
