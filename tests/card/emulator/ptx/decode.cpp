#include "tests/card/emulator/ptx/decode.h"

#include <algorithm>
#include <stdexcept>

namespace megjit::card::ptx {
namespace {

const Operations& operations() {
    static const auto& all = *[] {
        auto* ops = new Operations;
        add_integer_operations(*ops);
        add_bit_operations(*ops);
        add_float_operations(*ops);  // after the integers, which some of them fall back on
        add_compare_operations(*ops);
        add_convert_operations(*ops);
        add_memory_operations(*ops);
        add_atomic_operations(*ops);
        add_control_operations(*ops);
        add_warp_operations(*ops);
        add_matrix_operations(*ops);
        return ops;
    }();
    return all;
}

using What = Code::What;
constexpr std::pair<const char*, What> kSpecials[] = {
    {"%tid.x", What::tid_x},
    {"%tid.y", What::tid_y},
    {"%tid.z", What::tid_z},
    {"%ntid.x", What::ntid_x},
    {"%ntid.y", What::ntid_y},
    {"%ntid.z", What::ntid_z},
    {"%ctaid.x", What::ctaid_x},
    {"%ctaid.y", What::ctaid_y},
    {"%ctaid.z", What::ctaid_z},
    {"%nctaid.x", What::nctaid_x},
    {"%nctaid.y", What::nctaid_y},
    {"%nctaid.z", What::nctaid_z},
    {"%laneid", What::laneid},
    {"%warpid", What::warpid},
    {"%nwarpid", What::nwarpid},
    {"%smid", What::smid},
    {"%nsmid", What::nsmid},
    {"%gridid", What::gridid},
    {"%lanemask_eq", What::lanemask_eq},
    {"%lanemask_le", What::lanemask_le},
    {"%lanemask_lt", What::lanemask_lt},
    {"%lanemask_ge", What::lanemask_ge},
    {"%lanemask_gt", What::lanemask_gt},
    {"%dynamic_smem_size", What::dynamic_smem_size},
    {"%total_smem_size", What::total_smem_size},
    // A block is its own cluster.
    {"%cluster_ctaid.x", What::zero},
    {"%cluster_ctaid.y", What::zero},
    {"%cluster_ctaid.z", What::zero},
    {"%cluster_ctarank", What::zero},
    {"%cluster_nctaid.x", What::one},
    {"%cluster_nctaid.y", What::one},
    {"%cluster_nctaid.z", What::one},
    {"%cluster_nctarank", What::one},
    {"%clusterid.x", What::ctaid_x},
    {"%clusterid.y", What::ctaid_y},
    {"%clusterid.z", What::ctaid_z},
    {"%nclusterid.x", What::nctaid_x},
    {"%nclusterid.y", What::nctaid_y},
    {"%nclusterid.z", What::nctaid_z}};

uint64_t aligned(uint64_t at, uint64_t unit) { return (at + unit - 1) / unit * unit; }

uint32_t register_bytes(Type type) {
    return type == Type::pred ? 0 : std::max(bytes_of(type), 2u);  // .b8 has rows of 16 bits
}

void each_name(const Operand& operand, auto f) {
    if (!operand.name.empty()) f(operand.name);
    for (const Operand& part : operand.parts) each_name(part, f);
}

}  // namespace

Decoder::Decoder(const Symbols& symbols, const FunctionText& entry, Kernel& kernel)
    : symbols_(symbols), entry_(entry), kernel_(kernel) {}

void Decoder::refuse(const std::string& why) const {
    if (!statement_) ptx::refuse(entry_.line, why, entry_.name);
    ptx::refuse(statement_->line, why, statement_->text);
}

void Decoder::collect(const FunctionText& function) {
    if (open_.contains(&function)) {
        statement_ = nullptr;
        refuse("recursive calls are not executed: " + function.name);
    }
    if (!seen_.insert(&function).second) return;
    open_.insert(&function);
    for (const Statement& s : function.body) {
        if (s.opcode[0] != "call") continue;
        const auto callee = symbols_.texts.find(s.operands.at(0).name);
        if (callee != symbols_.texts.end() && callee->second->has_body) collect(*callee->second);
    }
    open_.erase(&function);
    functions_.push_back(&function);
}

uint32_t Decoder::take(uint32_t bytes) {
    const uint32_t unit = bytes >= 64 ? 64 : 4;
    code_.file_bytes = static_cast<uint32_t>(aligned(code_.file_bytes, unit));
    return std::exchange(code_.file_bytes, code_.file_bytes + bytes);
}

void Decoder::lay_out() {
    nowhere_ = take(16 * kLanes);  // also keeps offset 0 free: it stands for "none"
    std::set<std::string> used;
    uint64_t shared = 0, local = 0;
    const auto place = [](uint64_t& at, const Declaration& d) {
        at = aligned(at, d.align);
        return static_cast<uint32_t>(std::exchange(at, at + d.bytes()));
    };
    for (const FunctionText* f : functions_) {
        for (const Statement& s : f->body)
            for (const Operand& o : s.operands)
                each_name(o, [&](const std::string& n) { used.insert(n); });
        for (const auto& [name, type] : f->registers)
            registers_[f][name] = {take(type == Type::pred ? 4 : register_bytes(type) * kLanes),
                                   type};
        if (!f->is_entry)
            for (const auto* list : {&f->results, &f->parameters})
                for (const Declaration& d : *list) locals_[{f, d.name}] = place(local, d);
        for (const Declaration& d : f->variables) {
            if (d.space == Space::shared && !d.is_extern && d.count)
                shared_[d.name] = place(shared, d);
            else if (d.space != Space::shared) locals_[{f, d.name}] = place(local, d);
        }
    }
    for (const auto& [name, d] : symbols_.shared)
        if (!d.is_extern && d.count && used.contains(name)) shared_[name] = place(shared, d);
    uint64_t dynamic = aligned(shared, 16);
    bool has_dynamic = false;
    for (const auto& [name, d] : symbols_.shared)
        if ((d.is_extern || !d.count) && used.contains(name)) {
            dynamic = aligned(dynamic, d.align);
            has_dynamic = true;
        }
    for (const auto& [name, d] : symbols_.shared)
        if (d.is_extern || !d.count) shared_[name] = static_cast<uint32_t>(dynamic);
    code_.static_shared_bytes = static_cast<uint32_t>(has_dynamic ? dynamic : shared);
    code_.local_bytes = static_cast<uint32_t>(aligned(local, 16));
    uint64_t offset = 0;
    for (const Declaration& d : entry_.parameters) {
        parameters_[d.name] = place(offset, d);
        kernel_.parameters.push_back({parameters_[d.name], static_cast<uint32_t>(d.bytes())});
    }
    kernel_.parameter_bytes = static_cast<uint32_t>(offset);
}

std::shared_ptr<const Code> Decoder::run() {
    collect(entry_);
    lay_out();
    for (const FunctionText* f : functions_) {
        starts_[f] = static_cast<uint32_t>(code_.insts.size());
        decode(*f);
    }
    code_.entry = starts_.at(&entry_);
    kernel_.shared_bytes = code_.static_shared_bytes;
    kernel_.local_bytes = code_.local_bytes;
    uint32_t words = 0;
    for (const auto& [name, type] : entry_.registers) words += register_bytes(type) / 4;
    kernel_.registers = static_cast<int>(std::clamp(16 + words / 4, 16u, 255u));
    return std::make_shared<const Code>(std::move(code_));
}

void Decoder::decode(const FunctionText& function) {
    function_ = &function;
    std::vector<uint32_t> first;  // instruction of each statement
    branches_.clear();
    lists_.clear();
    for (const Statement& s : function.body) {
        first.push_back(static_cast<uint32_t>(code_.insts.size()));
        statement_ = &s;
        const auto op = operations().find(s.opcode[0]);
        if (op == operations().end()) refuse("an unknown instruction");
        Inst in;
        in.statement = static_cast<uint32_t>(code_.statements.size());
        Statement& kept = code_.statements.emplace_back();
        kept.line = s.line;
        kept.text = s.text;
        if (!s.guard.empty()) {
            in.guard = static_cast<int32_t>(predicate(s.guard));
            in.guard_negated = s.guard_negated;
        }
        base_ = in;
        pending_.clear();
        try {
            op->second(*this, s, in);
        } catch (const std::out_of_range&) { refuse("operands or modifiers are missing"); }
        if (!pending_.empty())
            branches_.emplace_back(static_cast<uint32_t>(code_.insts.size()), pending_);
        code_.insts.push_back(in);
    }
    first.push_back(static_cast<uint32_t>(code_.insts.size()));
    static const Statement end = [] {
        Statement s;
        s.opcode = {"ret"};
        s.text = "the end of the function";
        return s;
    }();
    Inst in;
    operations().at("ret")(*this, end, in);
    in.statement = static_cast<uint32_t>(code_.statements.size());
    code_.statements.push_back(end);
    code_.insts.push_back(in);
    const auto place = [&](const std::string& label) {
        const auto at = function.labels.find(label);
        if (at == function.labels.end()) refuse("no such label: " + label);
        return first.at(at->second);
    };
    for (const auto& [inst, label] : branches_) code_.insts[inst].target = place(label);
    for (const auto& [list, labels] : lists_)
        for (size_t i = 0; i < labels.size(); ++i) (*list)[i] = place(labels[i]);
}

Inst& Decoder::emit(const Statement&) { return code_.insts.emplace_back(base_); }

void Decoder::target(const std::string& label, Inst&) { pending_ = label; }
void Decoder::targets(const std::vector<std::string>& labels, Inst& in) {
    std::vector<uint32_t>& list = keep(std::vector<uint32_t>(labels.size()));
    in.list = list.data();
    lists_.emplace_back(&list, labels);
}

std::vector<uint32_t>& Decoder::keep(std::vector<uint32_t> list) {
    return code_.lists.emplace_back(std::move(list));
}

// ---- operands

uint32_t Decoder::constant(uint64_t bits, uint32_t bytes) {
    if (bytes < 8) bits &= (uint64_t{1} << 8 * bytes) - 1;
    auto& offset = constants_[{bits, bytes}];
    if (!offset) {
        offset = take(std::max(bytes, 2u) * kLanes);
        code_.constants.push_back({offset, bytes, bits});
    }
    return offset;
}

uint32_t Decoder::element_bytes(const Operand& operand) {
    const auto& known = registers_[function_];
    const auto it = known.find(operand.name);
    return it == known.end() ? 0 : register_bytes(it->second.type);
}

bool Decoder::is_predicate(const Operand& operand) const {
    const auto& known = registers_.at(function_);
    const auto it = known.find(operand.name);
    return it != known.end() && it->second.type == Type::pred;
}

uint32_t Decoder::predicate(const std::string& name) {
    const auto& known = registers_[function_];
    const auto it = known.find(name);
    if (it == known.end() || it->second.type != Type::pred) refuse(name + " is not a predicate");
    return it->second.offset;
}

uint32_t Decoder::dest_predicate(const Operand& operand) {
    return operand.name == "_" ? nowhere_ : predicate(operand.name);
}

uint32_t Decoder::dest(const Operand& operand, uint32_t bytes) {
    if (operand.name == "_") return nowhere_;
    const auto& known = registers_[function_];
    const auto it = known.find(operand.name);
    if (it == known.end()) refuse(operand.name + " is not a register");
    if (register_bytes(it->second.type) != bytes)
        refuse(text("%s has %u bits, the result %u", operand.name.c_str(),
                    8 * register_bytes(it->second.type), 8 * bytes));
    return it->second.offset;
}

bool Decoder::symbol(const std::string& name, Space& space, uint64_t& value) const {
    if (const auto it = shared_.find(name); it != shared_.end())
        return space = Space::shared, value = it->second, true;
    if (const auto it = locals_.find({function_, name}); it != locals_.end())
        return space = Space::local, value = it->second, true;
    if (const auto it = parameters_.find(name); in_entry() && it != parameters_.end())
        return space = Space::param, value = it->second, true;
    if (const auto it = symbols_.globals.find(name); it != symbols_.globals.end())
        return space = Space::global, value = it->second, true;
    return false;
}

uint32_t Decoder::local_offset(const FunctionText& function, const std::string& variable) const {
    const auto it = locals_.find({&function, variable});
    if (it == locals_.end()) refuse(variable + " is not a variable of .param");
    return it->second;
}
uint32_t Decoder::local_offset(const std::string& variable) const {
    return local_offset(*function_, variable);
}

uint32_t Decoder::source(const Operand& operand, uint32_t bytes) {
    if (operand.kind == Operand::Kind::integer || operand.kind == Operand::Kind::real32 ||
        operand.kind == Operand::Kind::real64)
        return constant(operand.bits, bytes);
    if (operand.kind != Operand::Kind::name) refuse("no address or vector here");
    const auto& known = registers_[function_];
    if (const auto it = known.find(operand.name); it != known.end()) {
        if (register_bytes(it->second.type) != bytes)
            refuse(text("%s has %u bits, %u are used", operand.name.c_str(),
                        8 * register_bytes(it->second.type), 8 * bytes));
        return it->second.offset;
    }
    for (const auto& [name, what] : kSpecials) {
        if (operand.name != name) continue;
        if (bytes != 4) {  // the only wider one
            if (operand.name != "%gridid") refuse(operand.name + " has 32 bits");
            return constant(0, bytes);
        }
        auto& offset = specials_[operand.name];
        if (!offset) {
            offset = take(4 * kLanes);
            code_.specials.push_back({what, offset});
        }
        return offset;
    }
    if (operand.name == "WARP_SZ") return constant(kLanes, bytes);
    if (operand.name.starts_with("%envreg")) return constant(0, bytes);
    Space space;
    uint64_t value = 0;
    if (symbol(operand.name, space, value)) return constant(value + operand.bits, bytes);
    if (symbols_.functions.contains(operand.name))
        refuse("addresses of functions are not executed");
    refuse("what is " + operand.name + "?");
}

uint32_t Decoder::source(const Operand& operand, Type type) {
    if (type == Type::pred) {
        if (operand.kind == Operand::Kind::integer) return constant(operand.bits ? kAll : 0, 4);
        return predicate(operand.name);
    }
    if (operand.kind == Operand::Kind::real64 && type == Type::f32)
        return constant(
            std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits))), 4);
    return source(operand, bytes_of(type));
}

namespace {
template <class S>
void low_part(Warp& w, const Inst& in) {  // in.count: parts of an element
    const S* a = row<S>(w, in.a);
    lanes<S>(w, in, [=, n = in.count](int i) { return a[i * n]; });
}
}  // namespace

uint32_t Decoder::narrowed(const Operand& operand, Type type) {
    const uint32_t has = element_bytes(operand), wants = bytes_of(type);
    if (has <= wants) return source(operand, type);
    const uint32_t from = source(operand, has), place = temporary(wants);
    Inst& low = emit(*statement_);
    low.a = from;
    low.d = place;
    low.count = static_cast<uint8_t>(has / wants);
    low.run = wants == 1   ? &low_part<uint8_t>
              : wants == 2 ? &low_part<uint16_t>
                           : &low_part<uint32_t>;
    return place;
}

// ---- types

Type type_of(const Statement& s) {
    for (auto modifier = s.opcode.rbegin(); modifier + 1 != s.opcode.rend(); ++modifier)
        if (const Type type = type_named(*modifier); type != Type::none) return type;
    return Type::none;
}
Type type_of(Decoder& d, const Statement& s) {
    const Type type = type_of(s);
    if (type == Type::none) d.refuse("of which type?");
    return type;
}
bool is_signed(Type type) {
    return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}
bool is_float(Type type) {
    return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::f64;
}

}  // namespace megjit::card::ptx
