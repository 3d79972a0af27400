// The text of loops. Each instruction has one line; values are numbered in their order, and
// constants are written where they are used:
//   loops (and the number of words, where parameters are a table)
//   v0: f32* = parameter
//   v1: index = parameter
//   v2: i64* = room 64 by 1 shared
//   v3: index = compute add v1 8:index
//   loop v4 = 0:index to v3 by 8:index with v5: f64x8 = 0x0:f64x8 {
//     v6: f32x8 = load #1 v0
//     yield v5
//   } gives v7: f64x8
//   if v8 {
//   } else {
//   }
#include <map>

#include "codegen/line_reader.h"
#include "codegen/loops/loops.h"

namespace megjit::codegen::loops {
namespace {

using namespace runtime;

constexpr std::string_view kKinds[] = {"b1", "i8", "i16", "i32", "i64", "index", "f32", "f64"};
constexpr std::string_view kOps[] = {
#define MEGJIT_X(name) #name,
    MEGJIT_LOOP_OPS(MEGJIT_X)
#undef MEGJIT_X
};

bool has_number(Op op) {
    switch (op) {
        case Op::lane:
        case Op::half:
        case Op::zip:
        case Op::load:
        case Op::store:
        case Op::thread:
        case Op::from_thread:
        case Op::barrier: return true;
        default: return false;
    }
}
bool has_dtype(const Inst& inst) {
    return inst.op == Op::widen || inst.op == Op::shorten || inst.op == Op::multiply ||
           (inst.op == Op::compute && inst.compute == ScalarOp::narrow);
}

class Printer {
public:
    explicit Printer(const Function& function) : function_(function) {}

    std::string run() {
        text_ = function_.table_words ? cat("loops ", function_.table_words, "\n") : "loops\n";
        for (const int id : function_.parameters) line(cat(defined(id), " = parameter"));
        for (const Function::Room& room : function_.rooms)
            line(cat(defined(room.value), " = room ", room.elements, " by ", room.lanes,
                     room.is_shared ? " shared" : ""));
        print_block(function_.body);
        return text_;
    }

private:
    void line(const std::string& text) {
        text_.append(static_cast<size_t>(2 * depth_), ' ').append(text) += '\n';
    }
    static std::string text_of(const Type& type) {
        return cat(kKinds[static_cast<size_t>(type.kind)], type.is_pointer ? "*" : "",
                   type.lanes > 1 ? cat("x", type.lanes) : "");
    }
    std::string defined(int id) {
        numbers_.emplace(id, static_cast<int>(numbers_.size()));
        return cat("v", numbers_.at(id), ": ", text_of(function_.type_of(id)));
    }
    std::string used(int id) const {
        const Function::Known& known = function_.values[static_cast<size_t>(id)];
        if (!known.is_constant) return cat("v", numbers_.at(id));
        if (known.type.kind == Kind::index)
            return cat(static_cast<int64_t>(known.bits), ":", text_of(known.type));
        char bits[24];
        std::snprintf(bits, sizeof bits, "0x%llX", static_cast<unsigned long long>(known.bits));
        return cat(bits, ":", text_of(known.type));
    }
    std::string all_used(std::span<const int> ids) const {
        std::string text;
        for (const int id : ids) text += cat(" ", used(id));
        return text;
    }

    void print_block(const Block& block) {
        for (const Inst& inst : block.insts) print_inst(inst);
        if (!block.results.empty()) line(cat("yield", all_used(block.results)));
    }
    void print_inside(const Block& block) {
        ++depth_;
        print_block(block);
        --depth_;
    }
    void print_end(const Inst& inst) {
        std::string results;
        for (const int id : inst.results) results += cat(results.empty() ? "" : " ", defined(id));
        line(results.empty() ? "}" : cat("} gives ", results));
    }

    void print_inst(const Inst& inst) {
        if (inst.op == Op::loop) {
            const Block& body = inst.blocks[0];
            numbers_.emplace(body.parameters[0], static_cast<int>(numbers_.size()));
            std::string head =
                cat("loop v", numbers_.at(body.parameters[0]), " = ", used(inst.args[0]), " to ",
                    used(inst.args[1]), " by ", used(inst.args[2]));
            for (size_t p = 1; p < body.parameters.size(); ++p) {
                const std::string start = used(inst.args[p + 2]);
                head += cat(" with ", defined(body.parameters[p]), " = ", start);
            }
            line(head + " {");
            print_inside(body);
            return print_end(inst);
        }
        if (inst.op == Op::choose) {
            line(cat("if ", used(inst.args[0]), " {"));
            print_inside(inst.blocks[0]);
            line("} else {");
            print_inside(inst.blocks[1]);
            return print_end(inst);
        }
        std::string text(name_of(inst.op));
        if (inst.op == Op::compute) text += cat(" ", runtime::name_of(inst.compute));
        if (has_dtype(inst)) text += cat(" ", info(inst.dtype).tag);
        if (has_number(inst.op)) text += cat(" #", inst.number);
        text += all_used(inst.args);
        line(inst.results.empty() ? text : cat(defined(inst.results[0]), " = ", text));
    }

    const Function& function_;
    std::string text_;
    std::map<int, int> numbers_;  // numbers of values in the text
    int depth_ = 0;
};

class Parser {
public:
    explicit Parser(std::string_view text) : text_(text) {}

    Function run() {
        LineReader head = next();
        if (head.word() != "loops") head.fault("expected 'loops'");
        if (!head.at_end()) function_.table_words = head.number<int>(head.word());
        parse_block(function_.body, true);
        return std::move(function_);
    }

private:
    bool at_end() const { return text_.find_first_not_of(" \t\r\n") == std::string_view::npos; }
    LineReader next() {
        if (at_end()) LineReader("loops", "", number_).fault("the text ends before a '}'");
        for (;;) {
            const size_t size = std::min(text_.find('\n'), text_.size());
            LineReader line("loops", text_.substr(0, size), ++number_);
            text_.remove_prefix(std::min(size + 1, text_.size()));
            if (!line.at_end()) return line;
        }
    }

    Type type_named(LineReader& line, std::string_view text) {
        Type type;
        if (const size_t star = text.find('*'); star != std::string_view::npos) {
            type.is_pointer = true;
            text = text.substr(0, star);
        } else if (const size_t x = text.find('x');
                   x != std::string_view::npos && text != "index") {
            const size_t digits = text.rfind('x');
            type.lanes = line.number<int>(text.substr(digits + 1));
            text = text.substr(0, digits);
        }
        type.kind = static_cast<Kind>(line.one_of(kKinds, text, "a type such as f32x8"));
        return type;
    }
    int add(Type type) {
        function_.values.push_back({type});
        return static_cast<int>(function_.values.size()) - 1;
    }
    int name(LineReader& line, std::string_view word, Type type) {
        if (word != cat("v", named_.size())) line.fault(cat("expected v", named_.size()));
        named_.push_back(add(type));
        return named_.back();
    }
    // Reads "v3: f32x8"; `word` is "v3:".
    int define(LineReader& line, std::string_view word) {
        if (!word.ends_with(':')) line.fault(cat("'", word, "' is not a value with a ':'"));
        word.remove_suffix(1);
        return name(line, word, type_named(line, line.word()));
    }
    int use(LineReader& line) {
        const std::string_view word = line.word();
        if (const size_t colon = word.find(':'); colon != std::string_view::npos) {
            const int id = add(type_named(line, word.substr(colon + 1)));
            Function::Known& known = function_.values[static_cast<size_t>(id)];
            known.is_constant = true;
            const std::string_view digits = word.substr(0, colon);
            if (digits.starts_with("0x")) {
                const auto [end, error] = std::from_chars(
                    digits.data() + 2, digits.data() + digits.size(), known.bits, 16);
                if (error != std::errc() || end != digits.data() + digits.size())
                    line.fault(cat("'", digits, "' is not a number"));
            } else {
                known.bits = static_cast<uint64_t>(line.number<int64_t>(digits));
            }
            return id;
        }
        if (!word.starts_with('v')) line.fault(cat("'", word, "' is not a value such as v0"));
        const auto number = line.number<size_t>(word.substr(1));
        if (number >= named_.size()) line.fault(cat("v", number, " is not defined before it"));
        return named_[number];
    }
    void expect(LineReader& line, std::string_view word) {
        if (!line.take(word)) line.fault(cat("expected '", word, "'"));
    }

    // Reads up to "}" and returns its line; the function's own block ends with the text.
    LineReader parse_block(Block& block, bool is_outermost = false) {
        for (;;) {
            if (is_outermost && at_end()) return LineReader("loops", "", number_);
            LineReader line = next();
            const std::string_view first = line.word();
            if (first == "}") return line;
            if (first == "yield") {
                while (!line.at_end()) block.results.push_back(use(line));
                LineReader end = next();
                expect(end, "}");
                return end;
            } else if (first == "loop") {
                parse_loop(line, block);
            } else if (first == "if") {
                parse_choose(line, block);
            } else {
                parse_inst(line, first, block, is_outermost);
            }
        }
    }
    void parse_end(LineReader& line, Inst& inst) {
        if (line.take("gives"))
            while (!line.at_end()) inst.results.push_back(define(line, line.word()));
        line.expect_end();
    }

    void parse_loop(LineReader& line, Block& block) {
        Inst inst;
        inst.op = Op::loop;
        Block body;
        body.parameters.push_back(name(line, line.word(), {}));
        for (const char* word : {"=", "to", "by"}) {
            expect(line, word);
            inst.args.push_back(use(line));
        }
        while (line.take("with")) {
            body.parameters.push_back(define(line, line.word()));
            expect(line, "=");
            inst.args.push_back(use(line));
        }
        expect(line, "{");
        LineReader end = parse_block(body);
        inst.blocks.push_back(std::move(body));
        parse_end(end, inst);
        block.insts.push_back(std::move(inst));
    }
    void parse_choose(LineReader& line, Block& block) {
        Inst inst;
        inst.op = Op::choose;
        inst.args.push_back(use(line));
        expect(line, "{");
        inst.blocks.resize(2);
        LineReader middle = parse_block(inst.blocks[0]);
        expect(middle, "else");
        expect(middle, "{");
        middle.expect_end();
        LineReader end = parse_block(inst.blocks[1]);
        parse_end(end, inst);
        block.insts.push_back(std::move(inst));
    }

    void parse_inst(LineReader& line, std::string_view first, Block& block, bool is_outermost) {
        Inst inst;
        if (first.ends_with(':')) {
            inst.results.push_back(define(line, first));
            expect(line, "=");
            first = line.word();
        }
        if (is_outermost && !inst.results.empty() && first == "parameter") {
            function_.parameters.push_back(inst.results[0]);
            return line.expect_end();
        }
        if (is_outermost && !inst.results.empty() && first == "room")
            return parse_room(line, inst.results[0]);
        inst.op = static_cast<Op>(line.one_of(kOps, first, "an instruction"));
        if (inst.op == Op::compute) inst.compute = line.scalar_op();
        if (has_dtype(inst)) inst.dtype = line.dtype();
        if (has_number(inst.op)) {
            const std::string_view number = line.word();
            if (!number.starts_with('#')) line.fault("expected a number such as #1");
            inst.number = line.number<int64_t>(number.substr(1));
        }
        while (!line.at_end()) inst.args.push_back(use(line));
        block.insts.push_back(std::move(inst));
    }
    void parse_room(LineReader& line, int value) {
        Function::Room room{.value = value};
        room.elements = line.number<int64_t>(line.word());
        expect(line, "by");
        room.lanes = line.number<int>(line.word());
        room.is_shared = line.take("shared");
        line.expect_end();
        function_.rooms.push_back(room);
    }

    std::string_view text_;
    int number_ = 0;
    Function function_;
    std::vector<int> named_;  // values by their numbers in the text
};

}  // namespace

std::string_view name_of(Op op) { return kOps[static_cast<size_t>(op)]; }
std::string print(const Function& function) { return Printer(function).run(); }
Function parse_loops(std::string_view text) { return Parser(text).run(); }

}  // namespace megjit::codegen::loops
