// jit/op_program.h -- one op as the simpler ones that it is made of, on a GPU as generated kernels
// of them. For devices that have no kernel of their own for it; a product with steps behind it
// becomes the plain one and a kernel of the steps, a plain one a kernel.
#pragma once

#include <memory>

#include "runtime/core/device.h"

namespace megjit::jit {

// Its workspace is the arena of what lies between them. Null where the op is made of none.
std::shared_ptr<const runtime::Executable> op_program(runtime::Device& device,
                                                      const runtime::OpCall& call);

}  // namespace megjit::jit
