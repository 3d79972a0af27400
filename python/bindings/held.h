// python/bindings/held.h -- what a recording for dump takes from outside: noted in its version
// (`FileNotes::held`), with the Python objects that hold it from call to call.
#pragma once

#include <vector>

#include "jit/file/file_states.h"
#include "jit/file/graph_file.h"
#include "python/bindings/traced_call.h"

namespace megjit::python {

// A recording for dump, and the objects that its version knows by address: Tensors, callables that
// give one (options), RandomStates (keys).
struct Recording {
    std::shared_ptr<jit::Version> version = {};
    std::vector<nb::object> holders = {};
};

// Notes what a call that ends holds, if its body was recorded for dump; else there is no
// version. What the body rebinds is no constant of the record from here on.
Recording recording_of(TracedCall& call, const nb::list& arguments);

struct DumpedStates {
    explicit DumpedStates(std::vector<Recording> recordings);
    std::vector<jit::State> present() const;  // with the values that they have now

    std::vector<Recording> recordings;
    jit::FileStates states;
};

}  // namespace megjit::python
