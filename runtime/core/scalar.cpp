#include "runtime/core/scalar.h"

#include <algorithm>
#include <cstdio>

#include "runtime/core/number_to_integer.h"
#include "runtime/core/scalar_fold.h"
#include "runtime/host/error.h"
#include "runtime/host/number_text.h"

namespace megjit::runtime {
namespace {

constexpr std::string_view kScalarNames[] = {
#define MEGJIT_X(name, arity) #name,
    MEGJIT_SCALAR_OPS(MEGJIT_X)
#undef MEGJIT_X
};
constexpr int kArities[] = {
#define MEGJIT_X(name, arity) arity,
    MEGJIT_SCALAR_OPS(MEGJIT_X)
#undef MEGJIT_X
};

ScalarType result_type(ScalarOp op, const ScalarProgram& program, std::span<const int32_t> args) {
    switch (op) {
        case ScalarOp::lt:
        case ScalarOp::le:
        case ScalarOp::eq:
        case ScalarOp::ne: return ScalarType::b1;
        case ScalarOp::bits_f32_to_i32: return ScalarType::i32;
        case ScalarOp::bits_i32_to_f32: return ScalarType::f32;
        case ScalarOp::select: return program[args[1]].type;
        default: return program[args[0]].type;
    }
}

// A constant as text for readers; in hexadecimal bits where decimal digits would not give it back
// exactly.
std::string constant_text(const ScalarInst& inst) {
    const auto real = [&](double value, int digits) {
        if (value - value == 0) return runtime::number_text(value, digits);
        char text[32];
        std::snprintf(text, sizeof text, "0x%0*llx", bits_in(inst.type) / 4,
                      static_cast<unsigned long long>(inst.bits));
        return std::string(text);
    };
    switch (inst.type) {
        case ScalarType::i32: return std::to_string(static_cast<int32_t>(inst.bits));
        case ScalarType::i64: return std::to_string(static_cast<int64_t>(inst.bits));
        case ScalarType::b1: return inst.bits ? "true" : "false";
        case ScalarType::f32:
            return real(std::bit_cast<float>(static_cast<uint32_t>(inst.bits)), 9);
        case ScalarType::f64: return real(std::bit_cast<double>(inst.bits), 17);
    }
    return "?";
}

uint64_t bits_of_number(ScalarType type, double value) {
    switch (type) {
        case ScalarType::f32: return std::bit_cast<uint32_t>(static_cast<float>(value));
        case ScalarType::f64: return std::bit_cast<uint64_t>(value);
        case ScalarType::i32: return static_cast<uint32_t>(number_to_integer(value));
        case ScalarType::i64: return static_cast<uint64_t>(number_to_integer<int64_t>(value));
        case ScalarType::b1: return value != 0;
    }
    throw InternalError("unknown scalar type");
}

}  // namespace

std::string_view name_of(ScalarOp op) { return kScalarNames[static_cast<int>(op)]; }
int arity_of(ScalarOp op) { return kArities[static_cast<int>(op)]; }

std::string_view name_of(ScalarType type) {
    switch (type) {
        case ScalarType::f32: return "f32";
        case ScalarType::i32: return "i32";
        case ScalarType::b1: return "b1";
        case ScalarType::f64: return "f64";
        case ScalarType::i64: return "i64";
    }
    return "?";
}

ScalarType compute_type(DType dtype) {
    switch (info(dtype).category) {
        case Category::boolean: return ScalarType::b1;
        case Category::integer: return dtype == DType::i64 ? ScalarType::i64 : ScalarType::i32;
        case Category::floating: return dtype == DType::f64 ? ScalarType::f64 : ScalarType::f32;
        case Category::complex: break;
    }
    user_error(
        {.what = "complex64 tensors have no element-wise arithmetic",
         .fix = "work on real(x) and imag(x), then put them together with complex(real, imag)"},
        ErrorKind::type);
}

int ScalarProgram::emit(ScalarInst inst) {
    // The identity is looked for first, for it names a value that exists already.
    if (const int same = identity_of(*this, inst); same >= 0) return same;
    if (const auto bits = fold(*this, inst)) {
        inst = {.op = ScalarOp::constant, .type = inst.type, .bits = *bits};
    }
    for (int id = 0; id < size(); ++id)
        if (insts_[id].op == inst.op && insts_[id] == inst) return id;
    insts_.push_back(inst);
    return size() - 1;
}

int ScalarProgram::input(int index, ScalarType type) {
    return emit({.op = ScalarOp::input, .type = type, .bits = static_cast<uint64_t>(index)});
}

int ScalarProgram::constant(ScalarType type, uint64_t bits) {
    return emit({.op = ScalarOp::constant, .type = type, .bits = bits});
}

int ScalarProgram::inline_program(const ScalarProgram& other, int result,
                                  std::span<const int> args) {
    std::vector<bool> needed(other.size(), false);
    needed[result] = true;
    for (int id = result; id >= 0; --id)
        if (needed[id])
            for (int k = 0; k < arity_of(other[id].op); ++k) needed[other[id].args[k]] = true;
    std::vector<int> renamed(other.size(), -1);
    for (int id = 0; id <= result; ++id) {
        if (!needed[id]) continue;
        ScalarInst inst = other[id];
        if (inst.op == ScalarOp::input) {
            renamed[id] = args[inst.bits];
            continue;
        }
        for (int k = 0; k < arity_of(inst.op); ++k) inst.args[k] = renamed[inst.args[k]];
        renamed[id] = emit(inst);
    }
    return renamed[result];
}

bool ScalarProgram::is_extremum(int id) const {
    const ScalarInst& inst = (*this)[id];
    if (inst.op != ScalarOp::select) return inst.op == ScalarOp::max || inst.op == ScalarOp::min;
    const ScalarInst& condition = (*this)[inst.args[0]];
    if (condition.op != ScalarOp::lt && condition.op != ScalarOp::le) return false;
    const int a = condition.args[0], b = condition.args[1];
    return (inst.args[1] == a && inst.args[2] == b) || (inst.args[1] == b && inst.args[2] == a);
}

void ScalarProgram::keep_only(std::vector<int>& results) {
    std::vector<bool> needed(size(), false);
    for (int id : results) needed[id] = true;
    for (int id = size() - 1; id >= 0; --id)
        if (needed[id])
            for (int k = 0; k < arity_of(insts_[id].op); ++k) needed[insts_[id].args[k]] = true;
    std::vector<int> renamed(size(), -1);
    int next = 0;
    for (int id = 0; id < size(); ++id) {
        if (!needed[id]) continue;
        ScalarInst inst = insts_[id];
        for (int k = 0; k < arity_of(inst.op); ++k) inst.args[k] = renamed[inst.args[k]];
        renamed[id] = next;
        insts_[next++] = inst;
    }
    insts_.resize(next);
    for (int& id : results) id = renamed[id];
}

Expr make(ScalarOp op, std::initializer_list<Expr> args) {
    ScalarInst inst{.op = op};
    ScalarProgram* program = args.begin()->program();
    int k = 0;
    for (const Expr& arg : args) inst.args[k++] = arg.id();
    inst.type = result_type(op, *program, {inst.args.data(), args.size()});
    return {program, program->emit(inst)};
}

Expr narrow(Expr x, DType dtype) {
    if (size_of(dtype) >= 4 || dtype == DType::b8) return x;
    ScalarInst inst{.op = ScalarOp::narrow, .type = x.type(), .narrow_to = dtype};
    inst.args[0] = x.id();
    return {x.program(), x.program()->emit(inst)};
}

Expr to_type(Expr x, ScalarType type) {
    if (x.type() == type) return x;
    if (type == ScalarType::b1) return ne(x, 0.0);
    if (is_real(type) && x.type() == ScalarType::b1) x = to_type(x, ScalarType::i32);
    ScalarInst inst{.op = ScalarOp::cast, .type = type};
    inst.args[0] = x.id();
    return {x.program(), x.program()->emit(inst)};
}

Expr Expr::constant(double value) const { return constant(type(), value); }

Expr Expr::constant(ScalarType type, double value) const {
    return {program_, program_->constant(type, bits_of_number(type, value))};
}

Expr promote_number(Expr like, double value) { return like.constant(value); }

std::string to_string(const ScalarProgram& program) {
    std::string text;
    for (int id = 0; id < program.size(); ++id) {
        const ScalarInst& inst = program[id];
        text += cat("%", id, ": ", name_of(inst.type), " = ", name_of(inst.op));
        if (inst.op == ScalarOp::input) text += cat(" ", inst.bits);
        if (inst.op == ScalarOp::constant) text += " " + constant_text(inst);
        if (inst.op == ScalarOp::narrow) text += cat(" ", info(inst.narrow_to).tag);
        for (int k = 0; k < arity_of(inst.op); ++k) text += cat(" %", inst.args[k]);
        text += "\n";
    }
    return text;
}

}  // namespace megjit::runtime
