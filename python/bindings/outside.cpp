#include "python/bindings/outside.h"

#include <algorithm>
#include <limits>

namespace megjit::python {
namespace {

using jit::RecordId;

bool is_argument(const nb::list& arguments, nb::handle object) {
    return std::ranges::any_of(arguments, [&](nb::handle each) { return each.is(object); });
}

// What outlives the call with another value that is in the record.
std::vector<Outside> updates_of(const TracedCall& call, jit::Recorder& recorder,
                                const nb::list& arguments) {
    std::vector<Outside> updates;
    std::vector<uint64_t> replaced;
    const std::vector<RecordId>& results = recorder.version()->record.results;
    const std::vector<Rebound::Lasting> lasting =
        call.rebound.lasting(call.session(), *call.capture());
    for (const Rebound::Lasting& each : lasting) {  // before the first is looked up
        if (!recorder.is_placeholder(*each.now)) recorder.note_outside(each.now);
        if (each.before && recorder.has_read(each.old)) recorder.note_outside(each.before);
    }
    for (const Rebound::Lasting& each : lasting) {
        const auto becomes = recorder.is_placeholder(*each.now)
                                 ? std::optional<RecordId>(each.now->trace.value)
                                 : recorder.find(each.now->id());
        if (!becomes || (each.is_grad && !recorder.find(each.old))) continue;
        if (is_argument(arguments, each.object)) {
            if (std::ranges::find(results, *becomes) == results.end())
                recorder.version()->updates =
                    runtime::cat("its argument, a ", to_string(each.now->type()),
                                 " tensor, in place at ", each.where);
            continue;
        }
        replaced.push_back(each.old);
        updates.push_back({.kind = jit::Input::Kind::state,
                           .is_grad = each.is_grad,
                           .holder = each.object,
                           .name = recorder.name_of(each.old),
                           .value = recorder.find(each.old),
                           .becomes = becomes});
    }
    recorder.make_varying(replaced);
    return updates;
}

// Where the body has let go of what it used, or returned, an attribute or an entry of a container
// is another tensor in the next call: a value that it keeps and writes into nothing, or else what
// it returns, or one from outside.
void note_kept(jit::Recorder& recorder, const std::vector<Outside>& updates) {
    const std::vector<RecordId>& results = recorder.version()->record.results;
    std::vector<RecordId> kept = recorder.live_values();
    std::erase_if(kept, [&](RecordId value) {
        return std::ranges::any_of(updates, [&](const Outside& u) { return u.becomes == value; }) ||
               recorder.version()->record.values[value].tensor;
    });
    std::ranges::stable_partition(
        kept, [&](RecordId value) { return std::ranges::find(results, value) == results.end(); });
    for (const RecordId value : kept) recorder.note_bound_anew(value, "a tensor from outside");
    recorder.note_bound_anew({}, "a tensor from outside");
}

}  // namespace

std::vector<Outside> outside_of(TracedCall& call, jit::Recorder& recorder,
                                const nb::list& arguments) {
    Capture::References known = call.capture()->references();
    call.rebound.count_references(known);
    call.capture()->count_results(known);
    const bool lets_go = call.rebound.lets_go(call.session(), *call.capture(), known) ||
                         std::ranges::any_of(call.capture()->released(known), [&](uint64_t id) {
        const auto value = recorder.find(id);
        return value && !recorder.is_argument(*value);
    });
    call.capture()->drop_temporaries(recorder, {});
    for (const auto& [tensor, where] : call.capture()->excluded_reads())
        recorder.note_excluded_read(tensor, where);
    std::vector<Outside> all = updates_of(call, recorder, arguments);
    if (lets_go) note_kept(recorder, all);
    const auto is_known = [&](RecordId value) {
        return std::ranges::any_of(all, [&](const Outside& each) { return each.value == value; });
    };
    const jit::Record& record = recorder.version()->record;
    const auto add = [&](uint64_t tensor, const nb::object& holder) {
        const auto value = recorder.find(tensor);
        if (!value || is_known(*value)) return;
        Outside& added = all.emplace_back();
        added = {.holder = holder, .name = recorder.name_of(tensor), .value = value};
        if (const jit::RecordedValue& recorded = record.values[*value];
            recorded.origin == jit::Origin::outside && !recorder.is_argument(*value))
            added.kind = record.inputs[recorded.slot].kind;
    };
    const auto& getters = call.capture()->getters();
    for (const auto& [tensor, getter] : getters)  // other options are constants
        if (recorder.is_varying(tensor)) add(tensor, getter);
    for (const auto& [tensor, object] : call.capture()->handles())
        if (!is_argument(arguments, object) && !getters.contains(tensor)) add(tensor, object);
    for (const auto& [first, second] : call.capture()->twins())
        for (const auto& [tensor, object] : call.capture()->handles())
            if (const auto value = recorder.find(tensor);
                value && object.is(first) && !is_argument(arguments, second))
                all.push_back({.holder = second, .name = recorder.name_of(tensor), .value = value});
    for (const TensorRef& bound : recorder.bound())
        if (runtime::RandomState* state = bound ? runtime::state_of(*bound) : nullptr)
            if (const nb::handle holder = nb::find(*state)) add(bound->id(), nb::borrow(holder));
    std::ranges::stable_sort(all, {}, [](const Outside& each) {
        return each.value.value_or(std::numeric_limits<RecordId>::max());
    });
    return all;
}

nb::list rows_of(const std::vector<Outside>& outside) {
    constexpr const char* kKinds[] = {"argument", "captured", "state", "key", "option"};
    nb::list rows;
    for (const Outside& each : outside) {
        nb::object value = nb::none(), becomes = nb::none();
        if (each.value) value = nb::cast(*each.value);
        if (each.becomes) becomes = nb::cast(*each.becomes);
        rows.append(nb::make_tuple(kKinds[static_cast<size_t>(each.kind)], each.is_grad,
                                   each.holder, each.name, value, becomes));
    }
    return rows;
}

}  // namespace megjit::python
