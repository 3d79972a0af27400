// jit/file/file_states.h -- FileStates: what the functions of one file keep from run to run. A
// tensor that one of them replaces is a state in all of them; so is a generator that one draws
// from, and an option, which may change from call to call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/trace/trace_function.h"

namespace megjit::jit {

class FileStates {
public:
    struct State {
        std::string name;
        Held held;  // as the first function has it
    };

    // UserError where a function takes a state and another tensor that were one value when it was
    // recorded: its graph has one input for both.
    explicit FileStates(const std::vector<std::shared_ptr<Version>>& functions);

    const std::vector<State>& all() const { return states_; }
    std::optional<uint32_t> find(const Held& held) const;  // its place in all(), if any

private:
    void check(const std::vector<Held>& taken) const;
    std::vector<State> states_;
};

}  // namespace megjit::jit
