// jit/plan/op_program.h -- one op as the simpler ones that it is made of, on a GPU as generated
// kernels of them. It serves devices that have no kernel of their own for the op. A product with
// steps after it becomes a plain one and a kernel of the steps; a plain one becomes a kernel.
#pragma once

#include <memory>

#include "runtime/core/device.h"

namespace megjit::jit {

// The workspace is the arena of values between those ops. Null where the op is made of none.
std::shared_ptr<const runtime::Executable> op_program(runtime::Device& device,
                                                      const runtime::OpCall& call);

}  // namespace megjit::jit
