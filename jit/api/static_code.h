// jit/api/static_code.h -- a function of a dumped file as C, for programs that link nothing of
// ours: generated kernels as objects, and a source that calls them in the order of the plan.
#pragma once

#include <map>
#include <string>

#include "jit/api/file.h"
#include "runtime/host/isa.h"

namespace megjit::api {

// Files by name: NAME.h, NAME.c, NAME.bin (constants), an object for each kernel, CMakeLists.txt.
// The code is for any CPU of the level `isa`, of either architecture, asks for no memory, and runs
// in the thread that calls it, or in those that the caller brings. States are memory of the
// caller's in a function that changes some, or with `keeps_states`; else constants, as they are
// now. UserError for a function that draws random numbers or has bounded outputs, an operation that
// no kernel computes (its name and line), and a name that is no identifier of C.
std::map<std::string, std::string> static_code_of(File& file, const std::string& function,
                                                  const std::string& name, bool keeps_states,
                                                  runtime::Isa isa);

}  // namespace megjit::api
