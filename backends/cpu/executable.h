// backends/cpu/executable.h -- executables from functions: kernels written by hand.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/core/function_executable.h"

namespace megjit::cpu {

using Prepared = std::shared_ptr<const runtime::Executable>;

// Makes one from a function (inputs, outputs, workspace); see runtime::function_executable for the
// rest.
template <class Run>
Prepared executable(Run run, size_t workspace = 0, bool aliases = false,
                    std::vector<runtime::Executable::Part> parts = {}) {
    return runtime::function_executable(
        [run = std::move(run)](runtime::Stream&, void* const* inputs, void* const* outputs,
                               void* scratch) { run(inputs, outputs, scratch); },
        workspace, aliases, std::move(parts));
}

}  // namespace megjit::cpu
