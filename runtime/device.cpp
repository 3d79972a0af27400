#include "runtime/device.h"

#include <cmath>
#include <vector>

#include "runtime/rematerializer.h"

namespace megjit::runtime {
namespace {
std::vector<std::unique_ptr<Device>>& devices() {
    // Never destroyed: tensors that outlive main() still return their memory.
    static auto* list = new std::vector<std::unique_ptr<Device>>;
    return *list;
}
}  // namespace

void register_device(std::unique_ptr<Device> device) { devices().push_back(std::move(device)); }

Device& host_device() {
    if (devices().empty()) throw InternalError("no device is registered");
    return *devices().front();
}

Device& find_device(std::string_view name) {
    std::string there;
    for (const auto& device : devices()) {
        if (device->name() == name) return *device;
        there += cat(there.empty() ? "" : ", ", device->name());
    }
    user_error({.what = cat("there is no device ", name), .fix = "there are " + there},
               ErrorKind::runtime);
}

std::vector<Device*> all_devices() {
    std::vector<Device*> list;
    for (const auto& device : devices()) list.push_back(device.get());
    return list;
}

namespace {

// Two blocks a line: a message has at most six.
std::string holders_text(const std::vector<LiveBlock>& blocks) {
    std::string text;
    for (size_t i = 0; i < blocks.size(); ++i) {
        const LiveBlock& block = blocks[i];
        text += i == 0 ? "" : i % 2 ? "; " : ";\n       ";
        text +=
            cat(std::llround(static_cast<double>(block.bytes) / (1 << 20)), " MiB ", block.what);
        if (!block.where.empty()) text += " " + block.where;
    }
    return text;
}

}  // namespace

void* allocate(Device& device, size_t bytes) {
    try {
        if (Rematerializer::is_on()) [[unlikely]]
            return Rematerializer::instance().allocate(device, bytes);
        return device.allocator().allocate(bytes);
    } catch (OutOfMemory& error) {
        constexpr size_t kTold = 5;
        error.say_who_holds(holders_text(device.live().largest(kTold)));
        throw;
    }
}

}  // namespace megjit::runtime
