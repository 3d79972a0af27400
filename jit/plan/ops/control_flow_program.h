// jit/plan/ops/control_flow_program.h -- scan, while_loop and cond as programs: their graphs are
// planned once, and each trip runs in the same arena.
#pragma once

#include <memory>

#include "runtime/core/device.h"

namespace megjit::jit {

// Its workspace holds the arena of a trip and one set of carries; the other lies in the results.
// Null where the op holds no graphs.
std::shared_ptr<const runtime::Executable> control_flow_program(runtime::Device& device,
                                                                const runtime::OpCall& call);

}  // namespace megjit::jit
