// tests/card/emulator/ptx/syntax.h -- PTX text as plain data: nothing is resolved yet.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace megjit::card::ptx {

enum class Type : uint8_t {
    none,
    pred,
    b8,
    b16,
    b32,
    b64,
    b128,
    u8,
    u16,
    u32,
    u64,
    s8,
    s16,
    s32,
    s64,
    f16,
    f16x2,
    bf16,
    bf16x2,
    f32,
    f64,
    tf32,
    e4m3x2,
    e5m2x2,
    f32x2
};
Type type_named(const std::string& name);  // none when it is no type
uint32_t bytes_of(Type type);

enum class Space : uint8_t { generic, global, shared, local, constant, param };

struct Operand {
    enum class Kind : uint8_t { name, integer, real32, real64, address, vector, none };
    Kind kind = Kind::none;
    std::string name;  // of a register, symbol or label; base of an address
    uint64_t bits = 0;  // the immediate, or an address's offset
    bool negated = false;  // !%p, -%r
    std::vector<Operand> parts;  // of a vector
    std::string second;  // %p|%q
};

struct Statement {
    int line = 0;
    std::string text;  // as in the source, for messages
    std::string guard;
    bool guard_negated = false;
    std::vector<std::string> opcode;  // "add", "rn", "f32"
    std::vector<Operand> operands;
    // call (results), function, (arguments), prototype
    std::vector<Operand> results, arguments;

    bool has(const char* modifier) const;
};

struct Declaration {
    std::string name;
    Space space = Space::generic;
    Type type = Type::none;
    uint32_t align = 1;
    uint64_t count = 1;  // elements; 0 for an extern array
    bool is_array = false, is_extern = false;
    struct Value {  // a number, or the address of a symbol
        uint64_t bits = 0;
        std::string symbol;
        bool generic = false;
    };
    std::vector<Value> initial;
    int line = 0;
    uint64_t bytes() const { return count * bytes_of(type); }
};

struct FunctionText {
    std::string name;
    bool is_entry = false, has_body = false;
    std::vector<Declaration> results, parameters;
    std::vector<Declaration> variables;  // of the body: local, shared, param
    std::vector<std::pair<std::string, Type>> registers;  // %r<10> is ten of them
    std::vector<Statement> body;
    std::map<std::string, size_t> labels;  // where in the body
    std::map<std::string, std::vector<std::string>> branch_targets;  // of brx.idx
    std::vector<uint32_t> max_threads, required_threads;
    int line = 0;
};

struct ModuleText {
    std::string version, target;
    std::vector<Declaration> variables;
    std::vector<std::unique_ptr<FunctionText>> functions;
};

// Throws Fault invalid_ptx that names the line.
ModuleText parse(const char* text);
[[noreturn]] void refuse(int line, const std::string& why, const std::string& text = {});

}  // namespace megjit::card::ptx
