#include "jit/trace/direct_call.h"

#include <algorithm>

#include "jit/trace/first_places.h"
#include "runtime/host/error.h"

namespace megjit::jit {

using runtime::Tensors;

void DirectCall::refuse_read(const std::string& where) {
    runtime::user_error(
        {.what =
             "trace with without_host=True: the body reads tensor values, or excludes code from the trace",
         .why = "later calls do not run the body, so it could not read them again",
         .fix = "return the tensors and read them outside, or drop without_host",
         .at = where},
        runtime::ErrorKind::runtime);
}

bool DirectCall::fits(const Tensors& arguments, const Tensors& captured) const {
    const Record& record = version_->record;
    FirstPlaces places(arguments.size());
    for (const TensorRef& argument : arguments) places.add(argument->id());
    for (size_t slot = 0; slot < captured.size(); ++slot) {
        const TensorRef& tensor = captured[slot];
        if (!tensor) continue;
        const RecordId then = record.inputs[slot].value;
        if (!(tensor->type() == record.graph.type(then)) ||
            &tensor->device() != record[then].device)
            return false;
        if (places.has(tensor->id())) return false;  // the record has two tensors
    }
    return true;
}

Tensors DirectCall::run(const CompiledSegment& compiled, Tensors& bound) const {
    const Record& record = version_->record;
    const Tensors outputs = compiled.run(record, bound);
    ++version_->calls;
    if (!version_->came_back) function_.note_use(version_);
    const std::vector<Output>& given = compiled.step->outputs;
    std::vector<size_t> place(record.values.size());
    for (size_t i = 0; i < given.size(); ++i) place[at(given[i].value)] = i;
    Tensors values;
    values.reserve(wanted_.size());
    for (RecordId id : wanted_)
        values.push_back(record[id].tensor ? record[id].tensor : outputs[place[at(id)]]);
    return values;
}

}  // namespace megjit::jit
