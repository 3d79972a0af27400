#include "tests/card/emulator/ptx/syntax.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/card/emulator/core.h"

namespace megjit::card::ptx {
namespace {

constexpr std::pair<const char*, Type> kTypes[] = {
    {"pred", Type::pred},     {"b8", Type::b8},         {"b16", Type::b16},
    {"b32", Type::b32},       {"b64", Type::b64},       {"b128", Type::b128},
    {"u8", Type::u8},         {"u16", Type::u16},       {"u32", Type::u32},
    {"u64", Type::u64},       {"s8", Type::s8},         {"s16", Type::s16},
    {"s32", Type::s32},       {"s64", Type::s64},       {"f16", Type::f16},
    {"f16x2", Type::f16x2},   {"bf16", Type::bf16},     {"f32", Type::f32},
    {"bf16x2", Type::bf16x2}, {"f64", Type::f64},       {"tf32", Type::tf32},
    {"e4m3x2", Type::e4m3x2}, {"e5m2x2", Type::e5m2x2}, {"f32x2", Type::f32x2}};

bool is_name_start(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}
bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}

class Parser {
public:
    explicit Parser(const char* text) : at_(text) {}

    ModuleText run() {
        ModuleText module;
        for (skip(); *at_; skip()) item(module);
        return module;
    }

private:
    // ---- characters
    void skip() {
        for (;;) {
            if (*at_ == '\n') ++line_, ++at_;
            else if (std::isspace(static_cast<unsigned char>(*at_))) ++at_;
            else if (at_[0] == '/' && at_[1] == '/')
                while (*at_ && *at_ != '\n') ++at_;
            else if (at_[0] == '/' && at_[1] == '*') {
                for (at_ += 2; *at_ && !(at_[0] == '*' && at_[1] == '/'); ++at_)
                    line_ += *at_ == '\n';
                if (*at_) at_ += 2;
            } else return;
        }
    }
    [[noreturn]] void unexpected(const char* wanted) {
        refuse(line_, std::string("expected ") + wanted, std::string(at_, strcspn(at_, "\n")));
    }
    bool take(const char* token) {
        skip();
        const size_t length = std::strlen(token);
        if (std::strncmp(at_, token, length) != 0) return false;
        if (is_name(token[length - 1]) && is_name(at_[length])) return false;
        at_ += length;
        return true;
    }
    void need(const char* token) {
        if (!take(token)) unexpected(token);
    }
    std::string name() {
        skip();
        if (!is_name_start(*at_)) unexpected("a name");
        const char* from = at_;
        while (is_name(*at_)) ++at_;
        return {from, at_};
    }
    std::string word() {  // after a dot
        const char* from = at_;
        while (is_name(*at_) || (*at_ == ':' && at_[1] == ':' && (at_ += 1))) ++at_;
        return {from, at_};
    }
    bool at_number() {
        skip();
        return std::isdigit(static_cast<unsigned char>(*at_)) ||
               (*at_ == '-' && std::isdigit(static_cast<unsigned char>(at_[1])));
    }
    Operand number() {
        skip();
        Operand operand;
        const bool negative = *at_ == '-';
        if (negative) ++at_;
        char* end = nullptr;
        if (*at_ == '0' && std::strchr("fFdD", at_[1]) && at_[1]) {
            const bool single = at_[1] == 'f' || at_[1] == 'F';
            const std::string digits(at_ + 2, single ? 8 : 16);
            operand.kind = single ? Operand::Kind::real32 : Operand::Kind::real64;
            operand.bits = std::strtoull(digits.c_str(), nullptr, 16);
            at_ += single ? 10 : 18;
            return operand;
        }
        operand.kind = Operand::Kind::integer;
        operand.bits = std::strtoull(at_, &end, 0);
        if (*end == '.' || *end == 'e') {
            const double value = std::strtod(at_, &end) * (negative ? -1 : 1);
            operand.kind = Operand::Kind::real64;
            std::memcpy(&operand.bits, &value, sizeof value);
        } else if (negative) operand.bits = -operand.bits;
        at_ = end;
        if (*at_ == 'U') ++at_;
        return operand;
    }
    uint64_t integer() {
        if (!at_number()) unexpected("a number");
        return number().bits;
    }
    void to_semicolon() {
        while (*at_ && *at_ != ';') line_ += *at_++ == '\n';
        need(";");
    }

    // ---- declarations
    void item(ModuleText& module) {
        const int line = line_;
        if (take(".version")) return void(module.version = rest_of_line());
        if (take(".target")) return void(module.target = rest_of_line());
        if (take(".address_size")) return void(rest_of_line());
        if (take(".file") || take(".loc") || take(".pragma")) return void(rest_of_line());
        if (take(".alias")) return to_semicolon();
        if (take(".section")) return section();
        bool is_extern = false;
        for (;;)
            if (take(".extern")) is_extern = true;
            else if (!take(".visible") && !take(".weak") && !take(".common")) break;
        if (take(".entry") || take(".func")) {
            const bool entry = at_[-1] == 'y';
            module.functions.push_back(function(entry, line));
            return;
        }
        for (Declaration& d : declaration(is_extern)) module.variables.push_back(std::move(d));
    }
    std::string rest_of_line() {
        while (*at_ == ' ' || *at_ == '\t') ++at_;
        const char* from = at_;
        while (*at_ && *at_ != '\n' && !(at_[0] == '/' && at_[1] == '/')) ++at_;
        std::string rest(from, at_);
        while (!rest.empty() && std::isspace(static_cast<unsigned char>(rest.back())))
            rest.pop_back();
        return rest;
    }
    void section() {
        while (*at_ && *at_ != '{') ++at_;
        for (int depth = 0; *at_; ++at_) {
            line_ += *at_ == '\n';
            depth += *at_ == '{';
            if (*at_ == '}' && --depth == 0) break;
        }
        if (*at_) ++at_;
    }
    static bool space_named(const std::string& word, Space& space) {
        constexpr std::pair<const char*, Space> kSpaces[] = {{"global", Space::global},
                                                             {"shared", Space::shared},
                                                             {"local", Space::local},
                                                             {"const", Space::constant},
                                                             {"param", Space::param}};
        for (const auto& [name, found] : kSpaces)
            if (word == name) return space = found, true;
        return false;
    }
    // .space .align N .type name[n] = {...}, name ... ;   Without `;` in lists of parameters.
    Declaration one_declaration(Declaration head) {
        head.name = name();
        head.count = 1;
        while (take("[")) {
            head.is_array = true;
            if (take("]")) {
                head.count = 0;
                continue;
            }
            head.count *= integer();
            need("]");
        }
        if (take("=")) initial(head);
        if (head.is_array && head.count == 0) head.count = head.initial.size();
        return head;
    }
    Declaration declaration_head() {
        Declaration head;
        head.line = line_;
        for (skip(); *at_ == '.'; skip()) {
            ++at_;
            const std::string what = word();
            if (what == "align") head.align = static_cast<uint32_t>(integer());
            else if (what == "ptr" || what == "managed" || what == "attribute") {
                if (what == "attribute") section_in_parentheses();
            } else if (Type type = type_named(what); type != Type::none) head.type = type;
            else if (what == "v2" || what == "v4")
                refuse(line_, "variables of vectors are not read");
            else if (!space_named(what, head.space) && what != "reg")
                refuse(line_, "what is ." + what + "?");
        }
        head.align = std::max(head.align, bytes_of(head.type));
        return head;
    }
    void section_in_parentheses() {
        while (*at_ && *at_ != ')') ++at_;
        if (*at_) ++at_;
    }
    std::vector<Declaration> declaration(bool is_extern) {
        Declaration head = declaration_head();
        head.is_extern = is_extern;
        if (head.type == Type::none) unexpected("a declaration");
        std::vector<Declaration> all;
        do all.push_back(one_declaration(head));
        while (take(","));
        need(";");
        return all;
    }
    void initial(Declaration& d) {
        if (take("{")) {
            if (take("}")) return;
            do initial(d);
            while (take(","));
            need("}");
            return;
        }
        Declaration::Value value;
        if (at_number()) {
            const Operand number_read = number();
            value.bits = number_read.bits;
        } else if (take("generic")) {
            need("(");
            value = {0, name(), true};
            need(")");
        } else value.symbol = name();
        if (take("+")) value.bits = integer();
        d.initial.push_back(value);
    }

    // ---- functions
    std::vector<Declaration> parameter_list() {
        std::vector<Declaration> list;
        if (take(")")) return list;
        do list.push_back(one_declaration(declaration_head()));
        while (take(","));
        need(")");
        return list;
    }
    std::vector<uint32_t> numbers() {
        std::vector<uint32_t> list;
        do list.push_back(static_cast<uint32_t>(integer()));
        while (take(","));
        return list;
    }
    std::unique_ptr<FunctionText> function(bool entry, int line) {
        auto f = std::make_unique<FunctionText>();
        f->is_entry = entry;
        f->line = line;
        if (take("(")) f->results = parameter_list();
        f->name = name();
        if (take("(")) f->parameters = parameter_list();
        for (;;) {
            if (take(".maxntid")) f->max_threads = numbers();
            else if (take(".reqntid")) f->required_threads = numbers();
            else if (take(".minnctapersm") || take(".maxnreg") || take(".maxclusterrank"))
                numbers();
            else if (take(".noreturn") || take(".blocksareclusters") || take(".explicitcluster"))
                continue;
            else if (take(".pragma")) to_semicolon();
            else break;
        }
        if (take(";")) return f;
        need("{");
        f->has_body = true;
        block(*f, "");
        return f;
    }
    // Names of an inner block are made unique: they end with its number.
    void block(FunctionText& f, const std::string& suffix) {
        std::map<std::string, std::string> outer = renamed_;
        for (;;) {
            skip();
            if (take("}")) break;
            if (take("{")) {
                block(f, "@" + std::to_string(++blocks_));
                continue;
            }
            if (!*at_) unexpected("}");
            if (*at_ == '.') directive(f, suffix);
            else statement(f);
        }
        renamed_ = outer;
    }
    std::string unique(const std::string& plain, const std::string& suffix) {
        if (!suffix.empty()) renamed_[plain] = plain + suffix;
        return plain + suffix;
    }
    std::string current(const std::string& plain) const {
        const auto it = renamed_.find(plain);
        return it == renamed_.end() ? plain : it->second;
    }
    void directive(FunctionText& f, const std::string& suffix) {
        if (take(".reg")) {
            const Type type = declaration_head().type;
            do {
                const std::string base = name();
                if (take("<")) {
                    const uint64_t count = integer();
                    for (uint64_t i = 0; i < count; ++i)
                        f.registers.emplace_back(unique(base + std::to_string(i), suffix), type);
                    need(">");
                } else f.registers.emplace_back(unique(base, suffix), type);
            } while (take(","));
            need(";");
        } else if (take(".loc") || take(".file")) rest_of_line();
        else if (take(".pragma")) to_semicolon();
        else
            for (Declaration& d : declaration(false)) {
                d.name = unique(d.name, suffix);
                f.variables.push_back(std::move(d));
            }
    }
    void statement(FunctionText& f) {
        Statement s;
        s.line = line_;
        const char* from = at_;
        if (take("@")) {
            s.guard_negated = take("!");
            s.guard = current(name());
        }
        const std::string first = name();
        skip();
        if (s.guard.empty() && *at_ == ':') {
            ++at_;
            label(f, first);
            return;
        }
        s.opcode.push_back(first);
        while (*at_ == '.') {
            ++at_;
            s.opcode.push_back(word());
        }
        if (first == "call") call(s);
        else if (!take(";")) {
            do s.operands.push_back(operand());
            while (take(","));
            need(";");
        }
        s.text.assign(from, at_);
        for (char& c : s.text)
            if (std::isspace(static_cast<unsigned char>(c))) c = ' ';
        f.body.push_back(std::move(s));
    }
    void label(FunctionText& f, const std::string& text) {
        skip();
        if (take(".branchtargets")) {
            auto& targets = f.branch_targets[text];
            do targets.push_back(name());
            while (take(","));
            need(";");
        } else if (take(".callprototype") || take(".calltargets")) to_semicolon();
        else f.labels[text] = f.body.size();
    }
    void call(Statement& s) {
        const auto list = [&] {
            std::vector<Operand> operands;
            if (take(")")) return operands;
            do operands.push_back(operand());
            while (take(","));
            need(")");
            return operands;
        };
        if (take("(")) {
            s.results = list();
            need(",");
        }
        s.operands.push_back(operand());
        if (take(",")) {
            if (take("(")) {
                s.arguments = list();
                if (take(",")) operand();  // the prototype
            } else operand();
        }
        need(";");
    }
    Operand operand() {
        skip();
        Operand o;
        if (at_number()) return number();
        if (take("{")) {
            o.kind = Operand::Kind::vector;
            if (take("}")) return o;
            do o.parts.push_back(operand());
            while (take(","));
            need("}");
            return o;
        }
        if (take("[")) {
            o.kind = Operand::Kind::address;
            if (at_number()) o.bits = number().bits;
            else {
                o.name = current(dotted());
                if (take("+")) o.bits = integer();
                else if (at_number()) o.bits = number().bits;  // [%r-4]
            }
            if (take(",")) unexpected("]");
            need("]");
            return o;
        }
        if (take("!") || take("-")) {
            const bool minus = at_[-1] == '-';
            o = operand();
            o.negated = true;
            if (minus && o.kind == Operand::Kind::name) refuse(line_, "a negated register");
            return o;
        }
        o.kind = Operand::Kind::name;
        o.name = current(dotted());
        if (take("|")) o.second = current(dotted());
        else if (take("+")) o.bits = integer();  // symbol + number
        return o;
    }
    std::string dotted() {  // %tid.x
        std::string whole = name();
        if (whole[0] == '%' && *at_ == '.') {
            whole += *at_++;
            whole += word();
        }
        return whole;
    }

    const char* at_;
    int line_ = 1, blocks_ = 0;
    std::map<std::string, std::string> renamed_;
};

}  // namespace

Type type_named(const std::string& name) {
    for (const auto& [text, type] : kTypes)
        if (name == text) return type;
    return Type::none;
}

uint32_t bytes_of(Type type) {
    switch (type) {
        case Type::none: return 0;
        case Type::pred:
        case Type::b8:
        case Type::u8:
        case Type::s8: return 1;
        case Type::b16:
        case Type::u16:
        case Type::s16:
        case Type::f16:
        case Type::bf16:
        case Type::e4m3x2:
        case Type::e5m2x2: return 2;
        case Type::b64:
        case Type::u64:
        case Type::s64:
        case Type::f64:
        case Type::f32x2: return 8;
        case Type::b128: return 16;
        default: return 4;
    }
}

bool Statement::has(const char* modifier) const {
    return std::find(opcode.begin() + 1, opcode.end(), modifier) != opcode.end();
}

void refuse(int line, const std::string& why, const std::string& text) {
    throw Fault(Result::invalid_ptx, "ptx line " + std::to_string(line) + ": " + why +
                                         (text.empty() ? "" : "\n  " + text));
}

ModuleText parse(const char* text) { return Parser(text).run(); }

}  // namespace megjit::card::ptx
