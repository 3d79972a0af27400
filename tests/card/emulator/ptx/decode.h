// tests/card/emulator/ptx/decode.h -- from statements to instructions: what the files of operations
// share.
#pragma once

#include <functional>
#include <set>
#include <unordered_map>

#include "tests/card/emulator/ptx/code.h"

namespace megjit::card::ptx {

class Decoder;
using Decode = void (*)(Decoder&, const Statement&, Inst&);
using Operations = std::unordered_map<std::string, Decode>;  // by the opcode's first word

// Each file of operations adds its own.
void add_integer_operations(Operations&);
void add_bit_operations(Operations&);
void add_float_operations(Operations&);
void add_half_operations(Operations&);
void add_compare_operations(Operations&);
void add_convert_operations(Operations&);
void add_memory_operations(Operations&);
void add_atomic_operations(Operations&);
void add_control_operations(Operations&);
void add_warp_operations(Operations&);
void add_matrix_operations(Operations&);

// Symbols of a module.
struct Symbols {
    std::map<std::string, Address> globals;  // also constants
    std::map<std::string, uint64_t> functions;  // addresses that programs see
    std::map<std::string, const FunctionText*> texts;
    std::map<std::string, Declaration> shared;  // of the module's scope
};

class Decoder {
public:
    Decoder(const Symbols& symbols, const FunctionText& entry, Kernel& kernel);
    std::shared_ptr<const Code> run();

    // ---- operands. Each refuses what does not fit.
    uint32_t dest(const Operand& operand, uint32_t bytes);  // a row with elements of so many bytes
    uint32_t source(const Operand& operand, uint32_t bytes);
    uint32_t source(const Operand& operand, Type type);  // immediates become that type
    // The low part of a register that may be wider than the type, by an instruction of its own.
    uint32_t narrowed(const Operand& operand, Type type);
    uint32_t dest_predicate(const Operand& operand);  // `_` goes to a place that nobody reads
    uint32_t predicate(const std::string& name);
    uint32_t element_bytes(const Operand& operand);  // of a register; 0 for anything else
    bool is_predicate(const Operand& operand) const;
    uint32_t constant(uint64_t bits, uint32_t bytes);
    // Branches of the current function: filled in when all of it is decoded.
    void target(const std::string& label, Inst& in);
    void targets(const std::vector<std::string>& labels, Inst& in);
    uint32_t start_of(const FunctionText& function) const { return starts_.at(&function); }
    std::vector<uint32_t>& keep(std::vector<uint32_t> list);
    uint32_t temporary(uint32_t bytes) { return take(bytes * kLanes); }
    uint32_t new_extent() { return code_.extents++; }
    // A symbol's address in its space, and the space; false when there is no such symbol.
    bool symbol(const std::string& name, Space& space, uint64_t& value) const;
    [[noreturn]] void refuse(const std::string& why) const;

    const FunctionText& function() const { return *function_; }
    bool in_entry() const { return function_->is_entry; }
    const Symbols& symbols() const { return symbols_; }
    uint32_t local_offset(const std::string& variable) const;  // of the current function's
    uint32_t local_offset(const FunctionText& function, const std::string& variable) const;
    const Statement& statement() const { return *statement_; }
    Inst& emit(const Statement& statement);

private:
    struct Register {
        uint32_t offset;
        Type type;
    };
    void collect(const FunctionText& function);  // callees first
    void lay_out();
    void decode(const FunctionText& function);
    uint32_t take(uint32_t bytes);

    const Symbols& symbols_;
    const FunctionText& entry_;
    Kernel& kernel_;
    Code code_;
    std::vector<const FunctionText*> functions_;
    std::set<const FunctionText*> seen_, open_;
    std::map<const FunctionText*, std::unordered_map<std::string, Register>> registers_;
    std::map<std::pair<const FunctionText*, std::string>, uint32_t> locals_;
    std::map<std::string, uint32_t> shared_, parameters_;
    std::map<const FunctionText*, uint32_t> starts_;  // in the instructions
    std::map<std::pair<uint64_t, uint32_t>, uint32_t> constants_;
    std::map<std::string, uint32_t> specials_;
    uint32_t nowhere_ = 0;  // a row that is written and never read
    // ---- of the function that is being decoded
    std::vector<std::pair<uint32_t, std::string>> branches_;  // instruction, label
    std::vector<std::pair<std::vector<uint32_t>*, std::vector<std::string>>> lists_;
    std::string pending_;  // the label of the current statement's branch
    Inst base_;  // what instructions of the current statement begin with
    const FunctionText* function_ = nullptr;
    const Statement* statement_ = nullptr;
};

// ---- the type of an instruction: its last modifier that is one
Type type_of(const Statement& s);
Type type_of(Decoder& d, const Statement& s);  // refuses when there is none
bool is_signed(Type type);
bool is_float(Type type);

// f.operator()<T>() for the integer type of so many bits.
template <class F>
auto with_integer(Decoder& d, Type type, F f) {
    switch (type) {
        case Type::s16: return f.template operator()<int16_t>();
        case Type::s32: return f.template operator()<int32_t>();
        case Type::s64: return f.template operator()<int64_t>();
        case Type::u16:
        case Type::b16: return f.template operator()<uint16_t>();
        case Type::u32:
        case Type::b32: return f.template operator()<uint32_t>();
        case Type::u64:
        case Type::b64: return f.template operator()<uint64_t>();
        default: d.refuse("not for this type");
    }
}
template <class F>
auto with_bits(Decoder& d, Type type, F f) {
    switch (bytes_of(type)) {
        case 2: return f.template operator()<uint16_t>();
        case 4: return f.template operator()<uint32_t>();
        case 8: return f.template operator()<uint64_t>();
        default: d.refuse("not for this type");
    }
}

}  // namespace megjit::card::ptx
