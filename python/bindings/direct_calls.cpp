#include "python/bindings/direct_calls.h"

#include <algorithm>

namespace megjit::python {

DirectCalls::Call DirectCalls::find(uint64_t guards) const {
    const auto found = by_guards_.find(guards);
    return found == by_guards_.end() ? nullptr : *found->second;
}

DirectCalls::Call DirectCalls::find(const Tensors& arguments) const {
    auto [call, end] = by_hash_.equal_range(jit::hash_of(arguments));
    while (call != end && !(*call->second)->takes(arguments)) ++call;
    return call == end ? nullptr : *call->second;
}

void DirectCalls::add(Call made) {
    const uint64_t guards = made->guards();
    const size_t hash = made->hash();
    calls_.push_front(std::move(made));
    by_guards_[guards] = calls_.begin();
    by_hash_.emplace(hash, calls_.begin());
}

DirectCalls::Order::iterator DirectCalls::place_of(const DirectCall& call) {
    const auto [first, end] = by_hash_.equal_range(call.hash());
    const auto found =
        std::find_if(first, end, [&](const auto& each) { return each.second->get() == &call; });
    return found == end ? calls_.end() : found->second;
}

void DirectCalls::note_use(const DirectCall& call) {
    if (!calls_.empty() && calls_.front().get() == &call) return;
    if (const auto place = place_of(call); place != calls_.end())
        calls_.splice(calls_.begin(), calls_, place);
}

void DirectCalls::drop(Order::iterator call) {
    const Call dropped = std::move(*call);  // goes last: its objects may call the function
    const auto guards = by_guards_.find(dropped->guards());
    if (guards != by_guards_.end() && guards->second == call) by_guards_.erase(guards);
    if (gone_.empty() || gone_.back() != dropped->guards()) gone_.push_back(dropped->guards());
    const auto [first, end] = by_hash_.equal_range(dropped->hash());
    by_hash_.erase(std::find_if(first, end, [&](const auto& each) { return each.second == call; }));
    calls_.erase(call);
}

void DirectCalls::drop_like(const Tensors& arguments) {
    while (const Call call = find(arguments)) drop(place_of(*call));
}

void DirectCalls::drop_left() {
    for (auto call = calls_.begin(); call != calls_.end();) {
        const auto each = call++;
        if ((*each)->has_left()) drop(each);
    }
}

void DirectCalls::close() {
    ++opening_;
    const auto dropped = std::exchange(open_facts_, {});
}

void DirectCalls::open(uint64_t guards, nb::object facts, nb::object result_of) {
    const Call call = find(guards);
    if (!call) return;
    call->set_facts(nb::inst_ptr<Facts>(facts), std::move(result_of), opening_);
    if (std::ranges::none_of(open_facts_, [&](const auto& each) { return each.is(facts); }))
        open_facts_.push_back(std::move(facts));
}

DirectCalls::Call DirectCalls::taking(PyObject* const* arguments, size_t count, PyObject* names,
                                      nb::list& tensors) const {
    const Call last = calls_.empty() ? nullptr : calls_.front();
    const Facts* const known = last ? last->facts_of(opening_) : nullptr;
    const auto takes = [&](const Facts& facts) {
        tensors = nb::list();
        return facts.takes(arguments, count, names, tensors);
    };
    if (known && takes(*known) && is_taken(*last, known, values_of(tensors))) return last;
    for (size_t i = 0; i < open_facts_.size(); ++i) {
        const nb::object held = open_facts_[i];  // comparing may run code that closes
        const Facts* const facts = nb::inst_ptr<Facts>(held);
        if (!takes(*facts)) continue;
        const Tensors given = values_of(tensors);
        Call call = find(given);
        if (call && is_taken(*call, facts, given)) return call;
    }
    return nullptr;
}

bool DirectCalls::holds(const DirectCall& call) const {
    const Facts* const facts = call.facts_of(opening_);
    return facts && facts->hold_all();
}

int DirectCalls::traverse(visitproc visit, void* arg) const {
    for (const Call& call : calls_)
        if (const int status = call->traverse(visit, arg)) return status;
    for (const nb::object& facts : open_facts_) Py_VISIT(facts.ptr());
    return 0;
}

std::list<DirectCalls::Call> DirectCalls::take_all() {
    for (const auto& [guards, call] : by_guards_) gone_.push_back(guards);
    by_guards_.clear();
    by_hash_.clear();
    close();
    return std::exchange(calls_, {});
}

}  // namespace megjit::python
