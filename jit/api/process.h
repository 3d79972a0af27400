// jit/api/process.h -- libmegjit.so in a process: it starts at the first use.
#pragma once

namespace megjit::api {

// Registers devices and compilers, once. UserError for an older CPU or a wrong option; the next
// call tries again.
void ensure_started();

}  // namespace megjit::api
