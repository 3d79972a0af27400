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
    std::string name = {};  // for the error
    std::vector<size_t> input_bytes = {}, output_bytes = {};  // of all launches
    bool shares_rows = false;  // threads share the rows of a reduction, and add in their own order
};

// As `inner`, which launches that. The first run, after which the host waits, throws InternalError
// with the first element that differs, unless it gives the interpreter's bits (any NaN for a NaN;
// of rows that threads share, 5 digits).
std::shared_ptr<const runtime::Executable> checked(std::shared_ptr<const runtime::Executable> inner,
                                                   CheckedLaunch launch);

}  // namespace megjit::codegen
