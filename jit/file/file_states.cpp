#include "jit/file/file_states.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/host/error.h"

namespace megjit::jit {

using runtime::cat;

FileStates::FileStates(const std::vector<std::shared_ptr<Version>>& functions) {
    std::unordered_map<std::string, int> uses;
    for (const auto& function : functions)
        for (const Held& held : function->notes.held) {
            if (held.kind == Input::Kind::captured || find(held)) continue;
            std::string name = !held.name.empty()              ? held.name
                               : held.kind == Input::Kind::key ? "random"
                                                               : cat("state_", states_.size());
            if (const int before = uses[name]++) name += cat("[", before, "]");
            states_.push_back({std::move(name), held});
        }
    for (const auto& function : functions) check(function->notes.held);
}

std::optional<uint32_t> FileStates::find(const Held& held) const {
    const auto found = std::ranges::find_if(
        states_, [&](const State& state) { return state.held.is_held_as(held); });
    if (found == states_.end()) return {};
    return static_cast<uint32_t>(found - states_.begin());
}

void FileStates::check(const std::vector<Held>& taken) const {
    for (auto first = taken.begin(); first != taken.end() && first->value != kNoValue;) {
        const auto end = std::find_if(first, taken.end(),
                                      [&](auto& each) { return each.value != first->value; });
        const bool is_one =
            std::all_of(first, end, [&](auto& each) { return each.is_held_as(*first); });
        if (!is_one && std::any_of(first, end, [&](auto& each) { return find(each).has_value(); }))
            runtime::user_error(
                {.what = cat("dump: the functions update ",
                             first->name.empty() ? "a tensor" : first->name,
                             " or another one, which were one value"),
                 .why = "a file has one input for what is one value when a function is recorded",
                 .fix = "give each its own, such as Parameter(value.numpy())"},
                runtime::ErrorKind::value);
        first = end;
    }
}

}  // namespace megjit::jit
