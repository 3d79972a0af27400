#include "runtime/device.h"

#include <vector>

namespace megjit::runtime {
namespace {
std::vector<std::unique_ptr<Device>>& devices() {
    // Never destroyed: tensors that outlive main() still return their memory.
    static auto* list = new std::vector<std::unique_ptr<Device>>;
    return *list;
}
}  // namespace

void register_device(std::unique_ptr<Device> device) { devices().push_back(std::move(device)); }

Device& default_device() {
    if (devices().empty()) throw InternalError("no device is registered");
    return *devices().front();
}

}  // namespace megjit::runtime
