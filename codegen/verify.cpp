// The verifier checks everything that compilers may assume about a kernel.
#include <algorithm>

#include "codegen/kernel_ir.h"
#include "codegen/tiles.h"

namespace megjit::codegen {
namespace {

using namespace runtime;
using enum ScalarOp;

constexpr ScalarType F = ScalarType::f32, I = ScalarType::i32, B = ScalarType::b1;

bool stores_as(DType dtype, ScalarType type) {
    return info(dtype).category != Category::complex && compute_type(dtype) == type;
}

// Says why `inst` cannot take operands of these types; "" when it can.
std::string type_fault(const ScalarInst& inst, ScalarType a, ScalarType b, ScalarType c) {
    const ScalarType t = inst.type;
    const auto needs = [](bool sound, const char* rule) {
        return sound ? std::string() : std::string(rule);
    };
    switch (inst.op) {
        case input: return "";
        case constant: return needs(t != B || inst.bits <= 1, "a b1 constant is 0 or 1");
        case add:
        case sub:
        case mul:
        case div:
        case mod:
            return needs(t != B && t == a && a == b,
                         "takes two numbers of one type and gives the same");
        case neg:
        case ScalarOp::abs:
            return needs(t != B && t == a, "takes a number and gives the same type");
        case max:
        case min:
            return needs(t == a && a == b, "takes two operands of one type and gives the same");
        case fma:
            return needs(is_real(t) && a == t && b == t && c == t,
                         "takes three reals of one type and gives the same");
        case pow:
        case atan2:
            return needs(is_real(t) && a == t && b == t,
                         "takes two reals of one type and gives the same");
        case ScalarOp::sqrt:
        case floor:
        case ceil:
        case trunc:
        case round_even:
        case ScalarOp::exp:
        case expm1:
        case log:
        case log1p:
        case sin:
        case cos:
        case tan:
        case asin:
        case acos:
        case atan:
        case sinh:
        case cosh:
        case tanh:
        case asinh:
        case acosh:
        case atanh:
        case erf:
        case erfc:
        case erfc_of_halves:
        case gelu_slope_of_halves:
        case erfinv:
        case lgamma:
        case digamma: return needs(is_real(t) && a == t, "takes a real and gives the same type");
        case bit_and:
        case bit_or:
        case bit_xor:
            return needs(!is_real(t) && t == a && a == b,
                         "takes two integers or two b1 and gives the same");
        case bit_not:
            return needs(!is_real(t) && t == a, "takes an integer or b1 and gives the same");
        case shl:
        case shr:
        case shr_logical:
            return needs(is_integer(t) && a == t && b == t,
                         "takes two integers of one type and gives the same");
        case lt:
        case le:
        case eq:
        case ne: return needs(t == B && a == b, "takes two operands of one type and gives b1");
        case select:
            return needs(a == B && t == b && b == c,
                         "takes b1 and two operands of one type, and gives that type");
        case cast:
            return needs(t != B && t != a && (a != B || is_integer(t)),
                         "takes another type than it gives, b1 only for integers, and gives no b1");
        case bits_f32_to_i32: return needs(t == I && a == F, "takes f32 and gives i32");
        case bits_i32_to_f32: return needs(t == F && a == I, "takes i32 and gives f32");
        case narrow:
            return needs(t == a && stores_as(inst.narrow_to, t),
                         "takes and gives the compute type of its dtype");
    }
    return "unknown instruction";
}

std::string inst_fault(const KernelIR& kernel, int id) {
    const ScalarInst& inst = kernel.program[id];
    if (static_cast<size_t>(inst.op) > static_cast<size_t>(narrow)) return "unknown instruction";
    ScalarType types[3] = {F, F, F};
    for (int k = 0; k < arity_of(inst.op); ++k) {
        if (inst.args[k] < 0 || inst.args[k] >= id)
            return cat("operand %", inst.args[k], " is not defined before it");
        types[k] = kernel.program[inst.args[k]].type;
    }
    if (inst.op == input && inst.bits >= kernel.inputs.size()) {
        const size_t r = inst.bits - kernel.inputs.size();
        if (r >= kernel.reductions.size())
            return cat("there are only ", kernel.inputs.size(), " inputs and ",
                       kernel.reductions.size(), " reductions");
        if (kernel.reductions[r].arg < 0 || kernel.reductions[r].arg >= id)
            return cat("reduction ", r, " reads what comes after it");
        if (kernel.type_of(kernel.reductions[r]) != inst.type)
            return cat("reduction ", r, " gives another type");
    } else if (inst.op == input) {
        if (!stores_as(kernel.inputs[inst.bits].dtype, inst.type))
            return cat("input ", inst.bits, " is ", info(kernel.inputs[inst.bits].dtype).tag);
    }
    return type_fault(inst, types[0], types[1], types[2]);
}

std::string operand_fault(const KernelIR& kernel, size_t i) {
    const Operand& input = kernel.inputs[i];
    if (input.dtype == DType::c64) return "complex64 is not a type of a kernel's input";
    if (i > 0 && kernel.inputs[i - 1].is_offset && !input.is_offset) return "offsets come last";
    if (input.is_offset && (input.dtype != DType::i32 || input.by >= 0))
        return "an offset is i32 and is not gathered";
    if (input.by < 0) return "";
    if (static_cast<size_t>(input.by) >= kernel.inputs.size() || input.by == static_cast<int>(i))
        return "it is gathered by no other input";
    const Operand& index = kernel.inputs[static_cast<size_t>(input.by)];
    if (index.dtype != DType::i32 || index.by >= 0 || index.is_offset)
        return "it is gathered by something else than i32 in memory";
    return input.per_row && !index.per_row ? "it is a row's, and what it is gathered by is not"
                                           : "";
}

std::string reduction_fault(const KernelIR& kernel, size_t r) {
    const auto [kind, arg] = kernel.reductions[r];
    if (arg < 0 || arg >= kernel.program.size()) return cat("%", arg, " is not defined");
    const ScalarType type = kernel.program[arg].type;
    const bool takes_reals = kind == Reduce::mean || kind == Reduce::variance,
               is_order = kind == Reduce::max || kind == Reduce::min;
    if (kind == Reduce::dot ? type != F : takes_reals ? !is_real(type) : !is_order && type == B)
        return cat(name_of(kind), " does not take this type");
    return "";
}

std::string output_fault(const KernelIR& kernel, size_t k,
                         const std::vector<KernelIR::Level>& levels) {
    const int id = kernel.results[k];
    const Operand& output = kernel.outputs[k];
    if (!stores_as(output.dtype, kernel.program[id].type))
        return cat("%", id, " cannot be stored as ", info(output.dtype).tag);
    if (output.by >= 0 || output.is_offset) return "an output is neither gathered nor an offset";
    if (output.per_row && !levels[id].per_row)
        return cat("%", id, " has a value for every element, not one a row");
    if (output.per_row && kernel.reduced == 0) return "there are no rows without a reduced axis";
    if (output.inner == Inner::broadcast && !(output.per_row && kernel.lanes == Lanes::last))
        return "several lanes write to one place";
    return "";
}

}  // namespace

std::string fault_of(const KernelIR& kernel) {
    if (kernel.rank < 1 || kernel.rank > kMaxRank)
        return cat("rank ", kernel.rank, " is not in 1..", kMaxRank);
    if (kernel.outputs.empty()) return "a kernel needs an output";
    if (kernel.outputs.size() != kernel.results.size())
        return cat(kernel.outputs.size(), " outputs but ", kernel.results.size(), " results");
    if (kernel.reduced < 0 || kernel.reduced > kernel.rank)
        return cat(kernel.reduced, " of ", kernel.rank, " axes cannot be reduced");
    if (kernel.lanes != Lanes::last && (kernel.reduced == 0 || kernel.kept() == 0))
        return "lanes that do not go over the last axis need a kept and a reduced one";
    if (kernel.reduced == 0 && !kernel.reductions.empty())
        return "a reduction needs a reduced axis";
    for (size_t i = 0; i < kernel.inputs.size(); ++i) {
        if (kernel.reduced == 0 && kernel.inputs[i].per_row)
            return cat("input ", i, ": there are no rows without a reduced axis");
        if (const std::string fault = operand_fault(kernel, i); !fault.empty())
            return cat("input ", i, ": ", fault);
    }
    for (int id = 0; id < kernel.program.size(); ++id)
        if (const std::string fault = inst_fault(kernel, id); !fault.empty())
            return cat("%", id, " (", name_of(kernel.program[id].op), "): ", fault);
    for (size_t r = 0; r < kernel.reductions.size(); ++r)
        if (const std::string fault = reduction_fault(kernel, r); !fault.empty())
            return cat("reduction ", r, ": ", fault);
    for (size_t k = 0; k < kernel.results.size(); ++k)
        if (kernel.results[k] < 0 || kernel.results[k] >= kernel.program.size())
            return cat("output ", k, ": %", kernel.results[k], " is not defined");
    const std::vector<KernelIR::Level> levels = kernel.levels();
    for (size_t k = 0; k < kernel.results.size(); ++k)
        if (const std::string fault = output_fault(kernel, k, levels); !fault.empty())
            return cat("output ", k, ": ", fault);
    if (kernel.lanes > Lanes::kept && !tile_plan_of(kernel))
        return "lanes=tiles or panels, but its rows share nothing";
    return "";
}

size_t memory_inputs(const KernelIR& kernel) {
    return static_cast<size_t>(
        std::count_if(kernel.inputs.begin(), kernel.inputs.end(),
                      [](const Operand& input) { return !input.is_offset; }));
}

ScalarType KernelIR::type_of(const Reduction& reduction) const {
    if (reduction.kind == Reduce::argmax || reduction.kind == Reduce::argmin) return I;
    return program[reduction.arg].type;
}

std::vector<KernelIR::Level> KernelIR::levels() const {
    std::vector<Level> levels;
    levels.reserve(static_cast<size_t>(program.size()));
    for (const ScalarInst& inst : program.insts()) {
        Level level{.pass = 0, .per_row = true};
        if (inst.op == ScalarOp::input) {
            if (inst.bits < inputs.size()) level.per_row = inputs[inst.bits].per_row;
            else level.pass = levels[reductions[inst.bits - inputs.size()].arg].pass + 1;
        }
        for (int k = 0; k < arity_of(inst.op); ++k) {
            level.pass = std::max(level.pass, levels[inst.args[k]].pass);
            level.per_row = level.per_row && levels[inst.args[k]].per_row;
        }
        levels.push_back(level);
    }
    return levels;
}

int KernelIR::passes() const {
    const std::vector<Level> known = levels();
    int last = -1;
    for (const Reduction& reduction : reductions) last = std::max(last, known[reduction.arg].pass);
    for (size_t k = 0; k < outputs.size(); ++k)
        if (!outputs[k].per_row) last = std::max(last, known[results[k]].pass);
    return last + 1;
}

}  // namespace megjit::codegen
