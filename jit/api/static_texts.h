// jit/api/static_texts.h -- the texts of static code: its header, its source around the steps, and
// its CMakeLists.txt.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/type.h"
#include "runtime/host/isa.h"

namespace megjit::api {

// A member of one of its structs: a pointer to a tensor's elements.
struct Member {
    std::string name;
    runtime::Type type;
    bool is_replaced = false;  // a state that the run replaces
};

struct StaticTexts {
    std::string name;  // the prefix of all names
    runtime::Isa isa;  // what the code needs
    std::vector<Member> inputs, outputs, states;
    size_t arena_bytes = 0;
    std::vector<std::string> kernels;  // symbols, one for each object
    std::string steps;  // statements of a run
    std::string start;  // statements that write the states

    std::string header() const;
    std::string source() const;
    std::string cmake() const;

private:
    std::string with_states(const std::string& last) const;
    std::string tensors_of(const std::string& kind, const std::vector<Member>& members,
                           const std::string& words) const;
};

// Makes names of members from those of tensors: other characters become '_', and all names differ.
std::vector<std::string> members_of(const std::vector<std::string>& names, const char* unnamed);

}  // namespace megjit::api
