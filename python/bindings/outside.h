// python/bindings/outside.h -- Outside: what a recording for dump has taken from outside, with the
// Python object that holds its value from call to call. A file keeps it as a constant, or as state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "jit/recorder.h"
#include "python/bindings/traced_call.h"

namespace megjit::python {

struct Outside {
    jit::Input::Kind kind = jit::Input::Kind::captured;
    bool is_grad = false;  // of the holder
    nb::object holder = {};  // a Tensor; option: a callable that gives one; key: a RandomState
    std::string name = {};  // "" where none was given
    std::optional<jit::RecordId> value = {};  // that stands for it; none: it is only rebound
    std::optional<jit::RecordId> becomes = {};  // what it is rebound to
};

// Of a call that ends, whose body was recorded; random keys in the order in which they were drawn.
// What it rebinds is no constant of the record from here on.
std::vector<Outside> outside_of(TracedCall& call, jit::Recorder& recorder,
                                const nb::list& arguments);

nb::list rows_of(const std::vector<Outside>& outside);

}  // namespace megjit::python
