#include "tests/card/emulator/ptx/rounding_rules.h"

#include <algorithm>
#include <set>

namespace megjit::card::ptx {
namespace {

bool is_float(const Statement& s) { return s.has("f32") || s.has("f64") || s.has("f32x2"); }

bool is_rounded(const Statement& s) {
    return s.has("rn") || s.has("rz") || s.has("rm") || s.has("rp");
}

bool is_approximate(const Statement& s) {
    // (Of halves these are corrected by whoever promises bits of them.)
    return is_float(s) && (s.has("approx") || s.has("full"));
}

}  // namespace

void refuse_loose_rounding(const FunctionText& function) {
    std::set<std::string> products;  // registers that hold one without rounding
    for (const Statement& s : function.body) {
        if (s.opcode.empty()) continue;
        if (is_approximate(s))
            refuse(s.line, function.name + " approximates, and promises bits", s.text);
        const std::string& name = s.opcode[0];
        const bool is_loose = is_float(s) && !is_rounded(s);
        const auto reads_product = [&](const Operand& operand) {
            return operand.kind == Operand::Kind::name && products.contains(operand.name);
        };
        if (is_loose && (name == "add" || name == "sub") &&
            std::any_of(s.operands.begin() + 1, s.operands.end(), reads_product))
            refuse(s.line,
                   function.name +
                       " adds a product to something, both without .rn, which may "
                       "become one instruction, and promises bits",
                   s.text);
        if (s.operands.empty() || s.operands[0].kind != Operand::Kind::name) continue;
        if (is_loose && name == "mul") products.insert(s.operands[0].name);
        else products.erase(s.operands[0].name);
    }
}

}  // namespace megjit::card::ptx
