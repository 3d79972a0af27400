// The verifier checks everything that printers and the interpreter assume.
#include "codegen/loops/loops.h"
#include "runtime/host/error.h"

namespace megjit::codegen::loops {
namespace {

using runtime::cat;

class Verifier {
public:
    explicit Verifier(const Function& function)
        : function_(function), known_(function.values.size()) {
        for (size_t id = 0; id < known_.size(); ++id) known_[id] = function.values[id].is_constant;
    }

    std::string fault() {
        for (const Function::Known& value : function_.values)
            if (value.type.lanes < 1 || (value.is_constant && value.type.is_pointer))
                say("a vector without lanes, or a constant pointer");
        for (const int id : function_.parameters) define(id);
        for (const Function::Room& room : function_.rooms) {
            define(room.value);
            if (room.elements < 1 || room.lanes < 1 || room.elements % room.lanes != 0)
                say(cat("a room of ", room.elements, " elements in vectors of ", room.lanes));
        }
        verify(function_.body);
        return fault_;
    }

private:
    void say(const std::string& why) {
        if (fault_.empty()) fault_ = why;
    }
    bool is_value(int id) const { return id >= 0 && static_cast<size_t>(id) < known_.size(); }
    void define(int id) {
        if (!is_value(id) || known_[static_cast<size_t>(id)])
            return say(cat("value ", id, " is defined twice, or not one"));
        known_[static_cast<size_t>(id)] = true;
    }
    const Type& type_of(int id) const { return function_.type_of(id); }

    void verify(const Block& block) {
        std::vector<bool> outside = known_;
        for (const int id : block.parameters) define(id);
        for (const Inst& inst : block.insts) {
            if (!fault_.empty()) return;
            verify(inst);
        }
        for (const int id : block.results) use(id, "yield");
        known_ = std::move(outside);  // definitions of a block end with it
    }
    void use(int id, std::string_view where) {
        if (!is_value(id) || !known_[static_cast<size_t>(id)])
            say(cat(where, ": value ", id, " is not defined before it"));
    }

    void verify(const Inst& inst) {
        for (const int id : inst.args) use(id, name_of(inst.op));
        if (!fault_.empty()) return;
        for (const Block& block : inst.blocks) verify(block);
        if (!fault_.empty()) return;
        if (const std::string why = type_fault(inst); !why.empty())
            say(cat(name_of(inst.op), ": ", why));
        for (const int id : inst.results) define(id);
    }

    bool same(const std::vector<int>& a, std::span<const int> b) const {
        if (a.size() != b.size()) return false;
        for (size_t n = 0; n < a.size(); ++n)
            if (type_of(a[n]) != type_of(b[n])) return false;
        return true;
    }

    std::string type_fault(const Inst& inst) const {
        const auto needs = [](bool sound, const char* rule) {
            return sound ? std::string() : std::string(rule);
        };
        const std::vector<int>& args = inst.args;
        const size_t count = args.size();
        const auto arg = [&](size_t n) { return n < count ? type_of(args[n]) : Type{}; };
        const Type to = inst.results.empty() ? Type{} : type_of(inst.results[0]);
        const auto is_mask = [&](size_t n, int lanes) {
            return n == count || (n + 1 == count && arg(n) == Type{Kind::b1, lanes});
        };
        const bool is_access = inst.number >= 0 && inst.number <= (kAligned | kOfOthers);
        if (inst.op != Op::loop && inst.op != Op::choose &&
            inst.results.size() != (gives_nothing(inst.op) ? 0 : 1))
            return gives_nothing(inst.op) ? "gives nothing" : "gives one value";
        switch (inst.op) {
            case Op::loop: return loop_fault(inst);
            case Op::choose:
                return needs(count == 1 && arg(0) == Type{Kind::b1} && inst.blocks.size() == 2 &&
                                 same(inst.results, inst.blocks[0].results) &&
                                 same(inst.results, inst.blocks[1].results),
                             "takes a b1 and two blocks that give its results");
            case Op::compute: return compute_fault(inst, to);
            case Op::convert: {
                const auto is_integer = [](Kind kind) {
                    return kind == Kind::i32 || kind == Kind::i64 || kind == Kind::index;
                };
                const auto is_number = [&](Kind kind) {
                    return is_integer(kind) || kind == Kind::f32 || kind == Kind::f64;
                };
                const Kind from = arg(0).kind;
                const bool fits =
                    from == Kind::b1 ? is_integer(to.kind) : is_number(from) && is_number(to.kind);
                return needs(count == 1 && arg(0).lanes == to.lanes && fits && !to.is_pointer,
                             "takes a number, or b1 for an integer");
            }
            case Op::fence: return needs(count == 1 && to == arg(0), "gives what it takes");
            case Op::widen:
            case Op::shorten: {
                const Type stored{storage_of(inst.dtype), to.lanes},
                    wide{kind_of(runtime::compute_type(inst.dtype)), to.lanes};
                const bool is_widen = inst.op == Op::widen;
                return needs(count == 1 && arg(0) == (is_widen ? stored : wide) &&
                                 to == (is_widen ? wide : stored),
                             "goes between memory and registers");
            }
            case Op::bits:
                return needs(count == 1 && arg(0).lanes == to.lanes &&
                                 bytes_of(arg(0).kind) == bytes_of(to.kind),
                             "keeps the number of bits");
            case Op::lanes:
                return needs(count == 0 && (to.kind == Kind::i32 || to.kind == Kind::i64 ||
                                            to.kind == Kind::index || to.kind == Kind::f32),
                             "takes nothing, and gives numbers");
            case Op::splat:
                return needs(count == 1 && arg(0) == Type{to.kind}, "takes one of what it gives");
            case Op::lane:
                return needs(count == 1 && to == Type{arg(0).kind} && inst.number >= 0 &&
                                 inst.number < arg(0).lanes,
                             "takes a lane that there is");
            case Op::half:
                return needs(count == 1 && arg(0) == Type{to.kind, 2 * to.lanes} &&
                                 (inst.number == 0 || inst.number == 1),
                             "gives half of the lanes");
            case Op::zip:
                return needs(count == 2 && arg(0) == to && arg(1) == to && to.lanes % 2 == 0 &&
                                 (inst.number == 0 || inst.number == 1),
                             "takes two vectors of an even number of lanes, and gives such a one");
            case Op::at:
                return needs(count == 2 && arg(0).is_pointer && to == arg(0) &&
                                 (arg(1) == Type{} || arg(1) == Type{Kind::i64}),
                             "takes a pointer and a number of elements");
            case Op::address:
                return needs(count == 1 && arg(0).is_pointer && to == Type{},
                             "takes a pointer and gives an index");
            case Op::load:
                return needs(count >= 1 && arg(0).is_pointer && arg(0).kind == to.kind &&
                                 is_mask(1, to.lanes) && is_access,
                             "takes a pointer to what it gives, and a mask");
            case Op::gather:
                return needs(count == 2 && arg(0).is_pointer && arg(0).kind == to.kind &&
                                 arg(1) == Type{Kind::i64, to.lanes},
                             "takes a pointer and an offset for each lane");
            case Op::store:
                return needs(count >= 2 && arg(0).is_pointer && arg(0).kind == arg(1).kind &&
                                 is_mask(2, arg(1).lanes) &&
                                 (is_access || (inst.number == kPastCaches && count == 2)),
                             "takes a pointer, what is stored there, and a mask");
            case Op::scatter:
                return needs(count >= 3 && arg(0).is_pointer && arg(0).kind == arg(2).kind &&
                                 arg(1) == Type{Kind::i64, arg(2).lanes} &&
                                 is_mask(3, arg(2).lanes),
                             "takes a pointer, an offset for each lane, values, and a mask");
            case Op::from_thread:
                return needs(count == 1 && arg(0) == Type{Kind::i32} && to == arg(0),
                             "takes and gives an i32");
            case Op::count:
                return needs(count == 1 && arg(0).is_pointer && arg(0).kind == Kind::i32 &&
                                 to == Type{Kind::i32},
                             "takes a pointer to i32");
            case Op::word:
                return needs(function_.table_words > 0 && count == 1 && arg(0) == Type{} &&
                                 (to.is_pointer || to == Type{} || to == Type{Kind::i64}),
                             "takes a number of a word of the table");
            case Op::thread:
                return needs(count == 0 && inst.number >= 0 &&
                                 inst.number <= static_cast<int64_t>(Where::part),
                             "takes a place of a thread");
            case Op::multiply: {
                const auto is_word = [&](int id) { return type_of(id) == Type{Kind::i32}; };
                const bool fits = count == 7 && std::all_of(args.begin(), args.end() - 1, is_word);
                return needs(fits && arg(6) == Type{Kind::f32, 4} && to == arg(6),
                             "takes six i32 and an f32x4, and gives such a one");
            }
            case Op::barrier:
            case Op::publish: return needs(count == 0, "takes nothing");
        }
        return "unknown instruction";
    }

    static bool gives_nothing(Op op) {
        return op == Op::store || op == Op::scatter || op == Op::barrier || op == Op::publish;
    }

    std::string compute_fault(const Inst& inst, const Type& to) const {
        const std::vector<int>& args = inst.args;
        const bool selects = inst.compute == ScalarOp::select;
        bool sound = !args.empty() && inst.compute != ScalarOp::input &&
                     inst.compute != ScalarOp::cast &&
                     args.size() == static_cast<size_t>(runtime::arity_of(inst.compute));
        if (!sound) return "takes other operands";
        const Type taken = type_of(args[selects ? 1 : 0]);
        for (size_t n = selects ? 1 : 0; n < args.size(); ++n)
            sound = sound && !taken.is_pointer && type_of(args[n]) == taken;
        if (selects) sound = sound && type_of(args[0]) == Type{Kind::b1, taken.lanes};
        if (!sound) return "takes values of one type";
        return to == result_of(inst.compute, taken) ? "" : "gives another type";
    }

    std::string loop_fault(const Inst& inst) const {
        const bool is_whole =
            inst.args.size() >= 3 && inst.blocks.size() == 1 && !inst.blocks[0].parameters.empty();
        if (!is_whole) return "takes a range and a block";
        for (size_t n = 0; n < 3; ++n)
            if (type_of(inst.args[n]) != Type{}) return "counts by an index";
        const Function::Known& step = function_.values[static_cast<size_t>(inst.args[2])];
        if (step.is_constant && static_cast<int64_t>(step.bits) < 1) return "never ends";
        const Block& body = inst.blocks[0];
        const auto state = std::span(body.parameters).subspan(1);
        const bool agrees = type_of(body.parameters[0]) == Type{} && same(inst.results, state) &&
                            same(body.results, state) &&
                            same(inst.results, std::span(inst.args).subspan(3));
        return agrees ? "" : "start, state and results have different types";
    }

    const Function& function_;
    std::vector<bool> known_;
    std::string fault_;
};

}  // namespace

std::string fault_of(const Function& function) { return Verifier(function).fault(); }

}  // namespace megjit::codegen::loops
