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
    return is_float(s) && (s.has("approx") || s.has("full"));
}

// Only a first guess: a quotient of halves begins with an approximate reciprocal, which two fused
// instructions correct to more bits than a half has (MLIR); fmod takes the integer part of an
// approximate quotient, and corrects the rest (CUDA's, which is exact).
bool is_corrected(const FunctionText& function, const Statement& s) {
    const auto corrects = [&](const Statement& other) {
        const bool is_step = !other.opcode.empty() &&
                             ((other.opcode[0] == "fma" && other.has("rn")) || other.has("rzi"));
        return is_step && std::ranges::any_of(other.operands, [&](const Operand& operand) {
            return operand.name == s.operands[0].name;
        });
    };
    return (s.opcode[0] == "rcp" || s.opcode[0] == "div") &&
           std::ranges::any_of(function.body, corrects);
}

}  // namespace

void refuse_loose_rounding(const FunctionText& function) {
    std::set<std::string> products;  // registers that hold one without rounding
    for (const Statement& s : function.body) {
        if (s.opcode.empty()) continue;
        if (is_approximate(s) && !is_corrected(function, s))
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
