// tests/card/libraries/cudnn_descriptor.h -- descriptors of the stand-in: which attributes each
// kind has, of which type, and how many; graphs are read from them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/card/libraries/cudnn_graph.h"
#include "tests/card/libraries/library.h"

namespace megjit::cuda::cudnn {

constexpr int kNotInitialized = 1001, kBadParameter = 2000, kNotSupported = 3000, kInternal = 4000;

struct Descriptor;

// What a plan is, once it is finalized: of a graph, or of its text.
struct PlanFacts {
    Graph graph;
    int engine = 0;
    size_t workspace = 0;
    std::string card;  // which it was made for
    const Descriptor* made_of = nullptr;  // the graph's, which must live as long; null: a text
    uint64_t serial = 0;  // its
};

struct Descriptor {
    explicit Descriptor(Kind kind);  // Misuse for a kind that nobody asks for

    struct Value {
        Tag tag = Tag::int64;
        int64_t count = 0;
        std::vector<std::byte> bytes = {};
    };
    const Kind kind;
    const uint64_t serial;  // of all that there were: addresses are used again
    bool is_final = false;
    std::map<int, Value> values = {};
    PlanFacts plan = {};  // of a plan, once it is finalized
    int engine = 0;  // of an engine or its configuration that the library gave
    bool is_given = false;

    void set(int name, Tag tag, int64_t count, const void* data);
    void finalize();  // Misuse where an attribute is missing, or does not go with another one

    bool has(int name) const { return values.contains(name); }
    Dims numbers(int name) const;  // of integers, enumerations and booleans
    int64_t number(int name) const { return numbers(name).at(0); }
    std::string text(int name) const;
    const Descriptor& one(int name) const { return *all(name).at(0); }
    std::vector<const Descriptor*> all(int name) const;  // live ones
};

card_libraries::Live& live();
Descriptor& checked(RawDescriptor raw);

// Reads a finalized descriptor of a graph.
Graph graph_of(const Descriptor& graph);

}  // namespace megjit::cuda::cudnn
