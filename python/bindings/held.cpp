#include "python/bindings/held.h"

#include <algorithm>

#include "jit/trace/recorder.h"

namespace megjit::python {
namespace {

using jit::Held;
using jit::RecordId;

RecordId value_in(const jit::Recorder& recorder, uint64_t tensor) {
    return recorder.find(tensor).value_or(jit::kNoValue);
}

nb::handle object_of(const Held& held) {
    return static_cast<PyObject*>(const_cast<void*>(held.holder));
}

Held& add(std::vector<Held>& all, jit::Input::Kind kind, RecordId value, nb::handle holder,
          const std::string& name) {
    Held& added = all.emplace_back();
    added.kind = kind;
    added.value = value;
    added.holder = holder.ptr();
    added.name = name;
    return added;
}

bool is_argument(const nb::list& arguments, nb::handle object) {
    return std::ranges::any_of(arguments, [&](nb::handle each) { return each.is(object); });
}

// Lists what outlives the call with another value that is in the record.
std::vector<Held> updates_of(const TracedCall& call, jit::Recorder& recorder,
                             const nb::list& arguments) {
    std::vector<Held> updates;
    std::vector<uint64_t> replaced;
    const std::vector<RecordId>& results = recorder.version()->notes.results;
    const std::vector<Rebound::Lasting> lasting =
        call.rebound.lasting(call.session(), *call.capture());
    for (const Rebound::Lasting& each : lasting) {  // before the first is looked up
        if (!recorder.is_placeholder(*each.now)) recorder.note_outside(each.now);
        if (each.before && recorder.has_read(each.old)) recorder.note_outside(each.before);
    }
    for (const Rebound::Lasting& each : lasting) {
        const RecordId becomes = recorder.is_placeholder(*each.now)
                                     ? RecordId{each.now->trace.value}
                                     : value_in(recorder, each.now->id());
        if (becomes == jit::kNoValue || (each.is_grad && !recorder.find(each.old))) continue;
        if (is_argument(arguments, each.object)) {
            if (std::ranges::find(results, becomes) == results.end())
                recorder.version()->notes.updates =
                    runtime::cat("its argument, a ", to_string(each.now->type()),
                                 " tensor, in place at ", each.where);
            continue;
        }
        replaced.push_back(each.old);
        Held& added = add(updates, jit::Input::Kind::state, value_in(recorder, each.old),
                          each.object, recorder.name_of(each.old));
        added.is_grad = each.is_grad;
        added.becomes = becomes;
    }
    recorder.make_varying(replaced);
    return updates;
}

// Where the body has let go of a tensor that it used or returned, an attribute or an entry of a
// container is another tensor in the next call: a value that the body keeps and writes nowhere,
// else one of its results, or one from outside.
void note_kept(jit::Recorder& recorder, const std::vector<Held>& updates) {
    const std::vector<RecordId>& results = recorder.version()->notes.results;
    std::vector<RecordId> kept = recorder.live_values();
    std::erase_if(kept, [&](RecordId value) {
        return std::ranges::any_of(updates, [&](const Held& u) { return u.becomes == value; }) ||
               recorder.version()->record[value].tensor;
    });
    std::ranges::stable_partition(
        kept, [&](RecordId value) { return std::ranges::find(results, value) == results.end(); });
    for (const RecordId value : kept) recorder.note_bound_anew(value, "a tensor from outside");
    recorder.note_bound_anew({}, "a tensor from outside");
}

// Adds the other tensors from outside, options and generators that the record has a value of.
void add_taken(const TracedCall& call, const jit::Recorder& recorder, const nb::list& arguments,
               std::vector<Held>& all) {
    const jit::Record& record = recorder.version()->record;
    const auto take = [&](uint64_t tensor, nb::handle holder) {
        const RecordId value = value_in(recorder, tensor);
        if (value == jit::kNoValue || std::ranges::find(all, value, &Held::value) != all.end())
            return;
        const bool has_slot = record.is_from_outside(value) && !recorder.is_argument(value);
        add(all, has_slot ? record.input(value).kind : jit::Input::Kind::captured, value, holder,
            recorder.name_of(tensor));
    };
    const Capture& capture = *call.capture();
    for (const auto& [tensor, getter] : capture.getters())  // other options are constants
        if (recorder.is_varying(tensor)) take(tensor, getter);
    for (const auto& [tensor, object] : capture.handles())
        if (!is_argument(arguments, object) && !capture.getters().contains(tensor))
            take(tensor, object);
    for (const auto& [first, second] : capture.twins())
        for (const auto& [tensor, object] : capture.handles())
            if (const auto value = recorder.find(tensor);
                value && object.is(first) && !is_argument(arguments, second))
                add(all, jit::Input::Kind::captured, *value, second, recorder.name_of(tensor));
    for (const TensorRef& bound : recorder.bound())
        if (runtime::RandomState* state = bound ? runtime::state_of(*bound) : nullptr)
            if (const nb::handle holder = nb::find(*state)) take(bound->id(), holder);
}

}  // namespace

Recording recording_of(TracedCall& call, const nb::list& arguments) {
    if (!call.session().function().options.capture_as_const) return {};  // a cast takes longer
    auto* const recorder = dynamic_cast<jit::Recorder*>(&call.session());
    if (!recorder) return {};
    Capture::References known = call.capture()->references();
    call.rebound.count_references(known);
    call.capture()->count_results(known);
    const bool lets_go = call.rebound.lets_go(call.session(), *call.capture(), known) ||
                         std::ranges::any_of(call.capture()->released(known), [&](uint64_t id) {
        const auto value = recorder->find(id);
        return value && !recorder->is_argument(*value);
    });
    call.capture()->drop_temporaries(*recorder, {});
    for (const auto& [tensor, where] : call.capture()->excluded_reads())
        recorder->note_excluded_read(tensor, where);
    // What the host has read matters though no op may have: another function may update it.
    for (const auto& [tensor, object] : call.capture()->handles())
        if (const TensorRef& value = value_of(object.ptr());
            value->id() == tensor && recorder->has_read(tensor))
            recorder->note_outside(value);
    std::vector<Held>& held = recorder->version()->notes.held;
    held = updates_of(call, *recorder, arguments);
    if (lets_go) note_kept(*recorder, held);
    add_taken(call, *recorder, arguments, held);
    std::ranges::stable_sort(held, {}, &Held::value);
    Recording result{recorder->version()};
    for (const Held& each : held) result.holders.push_back(nb::borrow(object_of(each)));
    return result;
}

DumpedStates::DumpedStates(std::vector<Recording> of)
    : recordings(std::move(of)), states([this] {
          std::vector<std::shared_ptr<jit::Version>> versions;
          for (const Recording& each : recordings) versions.push_back(each.version);
          return versions;
      }()) {}

std::vector<jit::State> DumpedStates::present() const {
    std::vector<jit::State> all;
    for (const auto& [name, held] : states.all()) {
        const nb::handle holder = object_of(held);
        jit::State& state = all.emplace_back(name);
        state.is_generator = nb::isinstance<runtime::RandomState>(holder);
        if (state.is_generator) {
            const auto& generator = nb::cast<runtime::RandomState&>(holder);
            const uint64_t words[] = {generator.current_seed(), generator.counter()};
            state.value = runtime::tensor_from_host(runtime::host_device(),
                                                    {.dtype = DType::i32, .shape = {4}}, words);
        } else {
            const nb::object tensor = held.is_grad ? nb::getattr(holder, "grad")
                                      : held.kind == jit::Input::Kind::option ? holder()
                                                                              : nb::borrow(holder);
            state.value = host_row_major(value_of(tensor.ptr()));
        }
    }
    return all;
}

}  // namespace megjit::python
