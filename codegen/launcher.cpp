#include "codegen/launcher.h"

#include <algorithm>
#include <map>
#include <mutex>

namespace megjit::codegen {
namespace {

struct Launchers {
    std::mutex mutex;
    std::map<std::string, LaunchKernel, std::less<>> by_device;
};
Launchers& launchers() {
    static Launchers instance;
    return instance;
}

}  // namespace

void set_launcher(std::string_view device, LaunchKernel launch) {
    std::lock_guard lock(launchers().mutex);
    launchers().by_device.insert_or_assign(std::string(device), launch);
}

bool runs_without_code(const KernelIR& kernel) {
    return kernel.reductions.empty() &&
           std::none_of(kernel.inputs.begin(), kernel.inputs.end(),
                        [](const Operand& input) { return input.by >= 0 || input.is_offset; });
}

LaunchKernel launcher(std::string_view device) {
    std::lock_guard lock(launchers().mutex);
    const auto found = launchers().by_device.find(device);
    return found == launchers().by_device.end() ? nullptr : found->second;
}

}  // namespace megjit::codegen
