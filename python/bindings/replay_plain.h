// python/bindings/replay_plain.h -- calls of a traced function that need nothing of Python.
#pragma once

#include <optional>

#include "python/bindings/handle.h"

namespace megjit::python {

// Runs what was recorded for tensors of these types, without its body and without guards. Nothing
// where there is no such recording, or where a call reads or changes more than these tensors.
// TypeError if `function` is no TraceFunction.
std::optional<Tensors> replay_plain(nb::handle function, const Tensors& arguments);

}  // namespace megjit::python
