// The body of a recorded call says things of its values here, and the recorder takes notes for
// dump.
#include <algorithm>

#include "jit/trace/recorder.h"
#include "runtime/host/error.h"

namespace megjit::jit {

using runtime::cat;
using runtime::Tensor;

void Recorder::note_results(std::span<const TensorRef> results) {
    notes().results = values_of(results);
}

void Recorder::note_bound_anew(std::optional<RecordId> now, const std::string& name) {
    if (!captures_ || !notes().bound_anew.empty()) return;
    notes().bound_anew = now && record().is_computed(*now)
                             ? cat(name, ", at ", record().graph.producer(*now).where)
                             : cat(name, ", in ", function_.options.name);
}

void Recorder::note_name(const TensorRef& tensor, std::string name) {
    if (is_placeholder(*tensor))
        record().graph.set_name(RecordId{tensor->trace.value}, std::move(name));
    else names_.emplace(tensor->id(), std::move(name));
}

const std::string& Recorder::name_of(uint64_t tensor) const {
    static const std::string kNone;
    const auto found = names_.find(tensor);
    return found == names_.end() ? kNone : found->second;
}

void Recorder::note_extents(const TensorRef& extents, const TensorRef& tensor) {
    if (captures_ && follows_from_arguments(tensor))
        extents_.emplace(extents->id(), value_of(tensor));
}

void Recorder::note_extent_reads(std::span<const ExtentOf> extents) {
    if (gives_extents || extents.empty()) return;
    const std::string where = where_();
    for (const ExtentOf& of : extents)
        if (notes().computed_outside.contains(of.value)) note_outside_read();
        else notes().extent_reads.push_back({of, where});
}

void Recorder::note_extent_read(const TensorRef& tensor, int axis) {
    if (!captures_ || !follows_from_arguments(tensor)) return;
    if (is_of_outside(*tensor)) return note_outside_read();
    const RecordId value = value_of(tensor);
    const ExtentOf one{value, axis};
    axis < 0 ? note_extent_reads(all_extents(value)) : note_extent_reads({&one, 1});
}

void Recorder::note_caught(const TensorRef& tensor, bool is_of_values) {
    note_extent_read(tensor, -1);
    const bool is_place = !runtime::is_floating(tensor->type().dtype);
    if (is_of_values && is_place && captures_ && !function_.options.symbolic)
        note_value_read(*tensor, where_());
}

GivenExtent Recorder::given_by(const TensorRef& tensor, int index) const {
    GivenExtent given{.kind = GivenExtent::Kind::read};
    if (is_placeholder(*tensor)) {
        const OfExtents& of = notes().of_extents_of(RecordId{tensor->trace.value});
        given.of = of.extents;
        given.is_itself = of.is_itself;
    } else if (const auto found = extents_.find(tensor->id()); found != extents_.end()) {
        given.of = {{found->second, index}};
        given.is_itself = true;
    }
    return given;
}

// Null where no op of the record computes the tensor.
Marks* Recorder::marks_of_producer(const TensorRef& tensor) {
    if (!is_placeholder(*tensor)) return nullptr;
    Graph& graph = record().graph;
    return &graph.marks_of(graph.value(RecordId{tensor->trace.value}).producer);
}

Marks& Recorder::marks_of(const TensorRef& tensor, std::string_view mark) {
    if (Marks* marks = marks_of_producer(tensor)) return *marks;
    refuse(
        {.what = cat(mark, ": this ", to_string(tensor->type()),
                     " tensor is not computed by the traced function"),
         .why = "inputs, parameters and constants have memory of their own, and stay there anyway",
         .fix = "mark a result of an operation inside the function",
         .at = where_()});
}

void Recorder::end_recompute(std::span<const TensorRef> results) {
    if (--recompute_.depth) return;
    if (segment_ != recompute_.segment)
        refuse({.what = "recompute: the function reads a value, or leaves the trace",
                .why = "what was computed before that cannot be computed again behind it",
                .fix = "read the value outside of the function that is given to recompute",
                .at = where_()});
    for (const TensorRef& result : results)
        if (Marks* marks = marks_of_producer(result)) marks->leaves_region = true;
}

// ---- values that the host reads

void Recorder::note_value_read(const Tensor& tensor, std::string where) {
    if (is_placeholder(tensor))
        notes().value_reads.push_back({RecordId{tensor.trace.value}, std::move(where)});
    else outside_reads_.emplace_back(tensor.id(), std::move(where));
}

void Recorder::note_excluded(uint64_t first, uint64_t behind) {
    if (captures_) excluded_.emplace_back(first, behind);
}

bool Recorder::is_excluded(uint64_t tensor) const {
    return std::ranges::any_of(excluded_, [tensor](const auto& range) {
        return range.first <= tensor && tensor < range.second;
    });
}

bool Recorder::has_read(uint64_t tensor) const {
    return std::ranges::any_of(outside_reads_,
                               [tensor](const auto& read) { return read.first == tensor; });
}

void Recorder::note_excluded_read(const TensorRef& tensor, const std::string& where) {
    if (!is_excluded(tensor->id())) note_value_read(*tensor, where);
    else if (notes().left_trace_at.empty()) notes().left_trace_at = where;
}

}  // namespace megjit::jit
