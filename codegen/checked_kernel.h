// codegen/checked_kernel.h -- MEGJIT_CHECK=1: the first run of a kernel is compared with the
// interpreter.
#pragma once

#include <memory>
#include <string>

#include "codegen/kernel_ir.h"

namespace megjit::codegen {

struct CheckedLaunch {
    KernelIR kernel = {};
    std::vector<LaunchShape> launches = {};
    std::string name = {};  // names the kernel in an error
    std::vector<size_t> input_bytes = {}, output_bytes = {};  // for the operands of all launches
    bool shares_rows = false;  // threads share a reduction's rows, and each adds in its own order
};

// Does what `inner` does, which runs `launch`. The host waits for the first run, and throws
// InternalError with the first element that differs from the interpreter's. Any NaN equals a NaN;
// rows that threads share must agree to 5 digits.
std::shared_ptr<const runtime::Executable> checked(std::shared_ptr<const runtime::Executable> inner,
                                                   CheckedLaunch launch);

}  // namespace megjit::codegen
