// The verifier: what every compiler may take for granted of a kernel.
#include "codegen/kernel_ir.h"

namespace megjit::codegen {
namespace {

using namespace runtime;
using enum ScalarOp;

constexpr ScalarType F = ScalarType::f32, I = ScalarType::i32, B = ScalarType::b1;

bool stores_as(DType dtype, ScalarType type) {
    return info(dtype).category != Category::complex && compute_type(dtype) == type;
}

// Why `inst` cannot take operands of these types; "" when it can.
std::string type_fault(const ScalarInst& inst, ScalarType a, ScalarType b, ScalarType c) {
    const ScalarType t = inst.type;
    const auto needs = [](bool sound, const char* rule) { return sound ? std::string() : std::string(rule); };
    switch (inst.op) {
        case input: return "";
        case constant: return needs(t != B || inst.bits <= 1, "a b1 constant is 0 or 1");
        case add: case sub: case mul: case div: case mod:
            return needs(t != B && t == a && a == b, "takes two f32 or two i32 and gives the same");
        case neg: case ScalarOp::abs: return needs(t != B && t == a, "takes f32 or i32 and gives the same");
        case max: case min: return needs(t == a && a == b, "takes two operands of one type and gives the same");
        case fma: return needs(t == F && a == F && b == F && c == F, "takes three f32 and gives f32");
        case pow: case atan2: return needs(t == F && a == F && b == F, "takes two f32 and gives f32");
        case ScalarOp::sqrt: case floor: case ceil: case trunc: case round_even:
        case ScalarOp::exp: case expm1: case log: case log1p: case sin: case cos: case tan: case asin: case acos:
        case atan: case sinh: case cosh: case tanh: case asinh: case acosh: case atanh: case erf: case erfc:
        case erfinv: case lgamma: case digamma:
            return needs(t == F && a == F, "takes f32 and gives f32");
        case bit_and: case bit_or: case bit_xor: return needs(t != F && t == a && a == b, "takes two i32 or two b1 and gives the same");
        case bit_not: return needs(t != F && t == a, "takes i32 or b1 and gives the same");
        case shl: case shr: case shr_logical: return needs(t == I && a == I && b == I, "takes two i32 and gives i32");
        case lt: case le: case eq: case ne: return needs(t == B && a == b, "takes two operands of one type and gives b1");
        case select: return needs(a == B && t == b && b == c, "takes b1 and two operands of one type, and gives that type");
        case f32_to_i32: case bits_f32_to_i32: return needs(t == I && a == F, "takes f32 and gives i32");
        case i32_to_f32: case bits_i32_to_f32: return needs(t == F && a == I, "takes i32 and gives f32");
        case b1_to_i32: return needs(t == I && a == B, "takes b1 and gives i32");
        case narrow: return needs(t == a && stores_as(inst.narrow_to, t), "takes and gives the compute type of its dtype");
    }
    return "unknown instruction";
}

std::string inst_fault(const KernelIR& kernel, int id) {
    const ScalarInst& inst = kernel.program[id];
    if (static_cast<size_t>(inst.op) > static_cast<size_t>(narrow)) return "unknown instruction";
    ScalarType types[3] = {F, F, F};
    for (int k = 0; k < arity_of(inst.op); ++k) {
        if (inst.args[k] < 0 || inst.args[k] >= id) return cat("operand %", inst.args[k], " is not defined before it");
        types[k] = kernel.program[inst.args[k]].type;
    }
    if (inst.op == input) {
        if (inst.bits >= kernel.inputs.size()) return cat("there are only ", kernel.inputs.size(), " inputs");
        if (!stores_as(kernel.inputs[inst.bits].dtype, inst.type))
            return cat("input ", inst.bits, " is ", info(kernel.inputs[inst.bits].dtype).tag);
    }
    return type_fault(inst, types[0], types[1], types[2]);
}

}  // namespace

std::string fault_of(const KernelIR& kernel) {
    if (kernel.rank < 1 || kernel.rank > kMaxRank) return cat("rank ", kernel.rank, " is not in 1..", kMaxRank);
    if (kernel.outputs.empty()) return "a kernel needs an output";
    if (kernel.outputs.size() != kernel.results.size())
        return cat(kernel.outputs.size(), " outputs but ", kernel.results.size(), " results");
    for (const Operand& input : kernel.inputs)
        if (input.dtype == DType::c64) return "complex64 is not a type of a kernel's input";
    for (int id = 0; id < kernel.program.size(); ++id)
        if (const std::string fault = inst_fault(kernel, id); !fault.empty())
            return cat("%", id, " (", name_of(kernel.program[id].op), "): ", fault);
    for (size_t k = 0; k < kernel.results.size(); ++k) {
        const int id = kernel.results[k];
        if (id < 0 || id >= kernel.program.size()) return cat("output ", k, ": %", id, " is not defined");
        if (!stores_as(kernel.outputs[k], kernel.program[id].type))
            return cat("output ", k, ": %", id, " cannot be stored as ", info(kernel.outputs[k]).tag);
    }
    return "";
}

}  // namespace megjit::codegen
