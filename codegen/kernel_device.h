// codegen/kernel_device.h -- KernelDevice: a device that runs generated kernels. All of our devices
// do.
#pragma once

#include <memory>
#include <vector>

#include "codegen/compiler.h"
#include "runtime/core/device.h"

namespace megjit::codegen {

class KernelDevice : public runtime::Device {
public:
    // Prepares one kernel over several spaces: the operands of one launch follow those of the
    // launch before. Without `code` the device runs the scalar program itself, slower but to the
    // same bits; only where runs_without_code() holds.
    virtual std::shared_ptr<const runtime::Executable> prepare_kernel(
        const KernelIR& kernel, std::vector<LaunchShape> launches, const CompiledKernel* code) = 0;

protected:
    using runtime::Device::Device;
};

inline KernelDevice& kernel_device(runtime::Device& device) {
    return dynamic_cast<KernelDevice&>(device);
}

}  // namespace megjit::codegen
