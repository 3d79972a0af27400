// tests/card/emulator/ptx/ -- PTX, executed. In: text, launches. Out: what a card would leave in
// memory, or a fault that names the instruction. A warp's 32 threads are the lanes of arrays.
//
// tests/card/emulator/ptx/program.h -- a module as its users see it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/card/emulator/core.h"

namespace megjit::card {

class Card;

namespace ptx {

struct Code;  // ptx/code.h

struct Parameter {
    uint32_t offset, bytes;
};

struct Variable {
    Address address;
    uint64_t bytes;
};

struct Kernel {
    std::string name;
    std::vector<Parameter> parameters;
    uint32_t parameter_bytes = 0;
    uint32_t shared_bytes = 0;  // static
    uint32_t local_bytes = 0;  // of a thread
    uint32_t max_threads = 0;  // .maxntid, else 0
    Dim3 required_block;  // .reqntid, else 1 x 1 x 1
    int registers = 32;  // what the number of live values lets expect
    std::shared_ptr<const Code> code;
};

class Program {
public:
    // Throws Fault invalid_ptx: the log, which names the line.
    Program(Card& card, const char* text);
    ~Program();
    Program(const Program&) = delete;

    const std::vector<std::unique_ptr<Kernel>>& kernels() const { return kernels_; }
    const Variable* variable(const std::string& name) const;

private:
    Card& card_;
    std::vector<std::unique_ptr<Kernel>> kernels_;
    std::map<std::string, Variable> variables_;
};

struct Shape {
    Dim3 grid, block;
    uint32_t dynamic_shared_bytes;
    const std::vector<std::byte>& parameters;
};

// Runs the grid on the calling thread; returns the nanoseconds that a card would take. Throws
// Fault.
double execute(Card& card, const Kernel& kernel, const Shape& shape);

// Instructions of threads since the last call, of all launches.
uint64_t take_thread_instructions();

}  // namespace ptx
}  // namespace megjit::card
