// runtime/core/function_executable.h -- an Executable from a function, for kernels written by hand.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/core/device.h"

namespace megjit::runtime {

template <class Run>
class FunctionExecutable final : public Executable {
public:
    FunctionExecutable(Run run, size_t workspace, bool aliases, std::vector<Part> parts)
        : run_(std::move(run)),
          workspace_(workspace),
          aliases_(aliases),
          parts_(std::move(parts)) {}
    void enqueue(Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        run_(stream, inputs, outputs, workspace);
    }
    size_t workspace_bytes() const override { return workspace_; }
    bool may_alias(int out, int in) const override { return aliases_ && out == 0 && in == 0; }
    std::optional<Part> part(int in) const override {
        if (static_cast<size_t>(in) >= parts_.size()) return {};
        return parts_[static_cast<size_t>(in)];
    }

private:
    Run run_;
    size_t workspace_ = 0;
    bool aliases_ = false;
    std::vector<Part> parts_;
};

// Makes an Executable that calls run(stream, inputs, outputs, workspace). `aliases`: output 0 may
// lie on input 0. `parts`: by input.
template <class Run>
std::shared_ptr<const Executable> function_executable(Run run, size_t workspace = 0,
                                                      bool aliases = false,
                                                      std::vector<Executable::Part> parts = {}) {
    return std::make_shared<const FunctionExecutable<Run>>(std::move(run), workspace, aliases,
                                                           std::move(parts));
}

}  // namespace megjit::runtime
