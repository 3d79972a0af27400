// backends/cpu/executable.h -- executables from functions: kernels written by hand. They may run in
// several threads.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/core/function_executable.h"
#include "runtime/core/type.h"

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

// Rounds up, so that parts of a workspace begin on cache lines.
inline size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Prepares results that are zeros: the sums over empty axes.
Prepared make_zeros(std::span<const runtime::Type> outputs);

}  // namespace megjit::cpu
