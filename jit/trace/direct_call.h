// jit/trace/direct_call.h -- DirectCall: a call of a traced function that does not run its body
// (without_host=True). Tensors from outside come in by slot of the record, values of the record
// come out; only the caller knows where the tensors are from, and who gets the values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/trace/session.h"

namespace megjit::jit {

class DirectCall {
public:
    // `wanted`: values of the version's record that each call gives.
    DirectCall(TraceFunction& function, std::shared_ptr<Version> version,
               std::vector<RecordId> wanted)
        : function_(function), version_(std::move(version)), wanted_(std::move(wanted)) {}
    // A body that reads values or leaves the trace, at this line, must run in each call.
    [[noreturn]] static void refuse_read(const std::string& where);

    // Is it a call like the recorded one, by its arguments?
    bool takes(const runtime::Tensors& arguments) const {
        return version_->key.describes(arguments);
    }
    size_t hash() const { return version_->key.hash; }
    bool has_left() const { return version_->has_left; }  // the function has dropped its version
    // Compares also what it captures: by slot, null where that is not said yet.
    bool fits(const runtime::Tensors& arguments, const runtime::Tensors& captured) const;
    // What the call runs; the first use compiles it. Never wait for it while a handle is empty.
    CompiledSegment compiled() const { return version_->compiled(0, function_.options); }
    // What compiled() gives if nothing is left to be compiled, else no program: never waits.
    CompiledSegment compiled_before() const { return version_->compiled_before(0); }
    // The wanted values. `bound`: by slot, taken as CompiledSegment::run does.
    runtime::Tensors run(const CompiledSegment& compiled, runtime::Tensors& bound) const;

private:
    TraceFunction& function_;
    std::shared_ptr<Version> version_;
    std::vector<RecordId> wanted_;
};

}  // namespace megjit::jit
