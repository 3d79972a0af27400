#include "runtime/core/op.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "runtime/host/mutex.h"
#include "runtime/host/number_text.h"
#include "runtime/host/unknown_name.h"

namespace megjit::runtime {
namespace {

struct Registry {
    Mutex mutex{"the ops"};
    std::deque<OpDef> ops;  // addresses stay valid
    std::unordered_map<std::string_view, const OpDef*> by_name;
    std::vector<const OpDef*> listed;
};
Registry& registry() {
    static Registry instance;
    return instance;
}

const OpDef& add_op(OpDef op, bool listed) {
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    if (auto found = r.by_name.find(op.name); found != r.by_name.end()) return *found->second;
    r.ops.push_back(std::move(op));
    const OpDef& stored = r.ops.back();
    r.by_name.emplace(stored.name, &stored);
    if (listed) r.listed.push_back(&stored);
    return stored;
}

const Attr& attr_of(const OpCall& call, std::string_view name) {
    for (size_t i = 0; i < call.op.attrs.size(); ++i)
        if (call.op.attrs[i].name == name) return call.attrs.at(i);
    throw InternalError(cat("op ", call.op.name, " has no attribute ", name));
}

template <class T>
const T& attr_as(const OpCall& call, std::string_view name) {
    if (const T* value = std::get_if<T>(&attr_of(call, name))) return *value;
    throw InternalError(cat("attribute ", name, " of op ", call.op.name, " is of another kind"));
}

DType result_dtype(const OpCall& call) {
    switch (call.op.result) {
        case Result::same: return call.inputs.empty() ? DType::f32 : call.inputs.back().dtype;
        case Result::boolean: return DType::b8;
        case Result::attribute: return call.dtype("dtype");
    }
    throw InternalError("unknown result rule");
}

Type infer_elementwise(const OpCall& call) {
    Shape shape = call.inputs.empty() ? Shape{} : call.inputs[0].shape;
    Layout layout = call.inputs.empty() ? Layout::row_major : call.inputs[0].layout;
    for (const Type& input : call.inputs.subspan(std::min<size_t>(1, call.inputs.size()))) {
        const auto both = broadcast(shape, input.shape);
        if (!both) {
            std::string types;
            for (const Type& type : call.inputs)
                types += (types.empty() ? "" : " and ") + to_string(type);
            user_error({.what = cat(call.op.name, ": cannot broadcast ", types),
                        .why = "from the last axis backwards, extents must be equal or 1",
                        .fix = "reshape or expand_dims one of them"},
                       ErrorKind::operands);
        }
        if (input.rank() == both->rank() && input.shape == *both) layout = input.layout;
        shape = *both;
    }
    return {result_dtype(call), shape, layout};
}

// "tanh.grad0" -> ("tanh", 0): derived ops are made from their names again, so that the text of a
// graph parses.
const OpDef* derive_by_name(std::string_view name);

}  // namespace

int64_t OpCall::integer(std::string_view name) const { return attr_as<int64_t>(*this, name); }
double OpCall::real(std::string_view name) const { return attr_as<double>(*this, name); }
const std::vector<int64_t>& OpCall::integers(std::string_view name) const {
    return attr_as<std::vector<int64_t>>(*this, name);
}
const std::string& OpCall::text(std::string_view name) const {
    return attr_as<std::string>(*this, name);
}

OperandKind OpDef::kind_of(size_t operand) const {
    return inputs[std::min(operand, inputs.size() - 1)].kind;
}

std::optional<size_t> OpDef::weights() const {
    for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i].kind == OperandKind::weights) return i;
    return std::nullopt;
}

void register_op(OpDef op) { add_op(std::move(op), true); }

const OpDef* find_op_or_null(std::string_view name) {
    Registry& r = registry();
    {
        std::lock_guard lock(r.mutex);
        if (auto found = r.by_name.find(name); found != r.by_name.end()) return found->second;
    }
    return derive_by_name(name);
}

const OpDef& find_op(std::string_view name) {
    if (const OpDef* op = find_op_or_null(name)) return *op;
    user_error({.what = cat("there is no op named '", name, "'"), .fix = how_to_get_op(name)});
}

std::vector<const OpDef*> all_ops() {
    std::lock_guard lock(registry().mutex);
    return registry().listed;
}

void check_input_count(const OpDef& op, size_t got) {
    const size_t wanted = op.inputs.size();
    if (op.variadic ? got + 1 < wanted || got == 0 : got != wanted)
        user_error({.what = cat(op.name, ": takes ", wanted, op.variadic ? " or more" : "",
                                " tensors, got ", got)},
                   ErrorKind::type);
}

bool same(const Attr& a, const Attr& b) {
    const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
    return x && y ? std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y) : a == b;
}

bool same(const Attrs& a, const Attrs& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Attr& x, const Attr& y) { return same(x, y); });
}

bool OpDef::computes_64_bits() const {
    return takes_64_bits || is_elementwise() || reduction || access != Access::other;
}

std::vector<Type> infer(const OpCall& call) {
    check_input_count(call.op, call.inputs.size());
    if (call.op.is_elementwise()) return {infer_elementwise(call)};
    if (!call.op.computes_64_bits())
        for (const Type& input : call.inputs)
            if (input.dtype == DType::f64 || input.dtype == DType::i64)
                user_error(
                    {.what = cat(call.op.name, ": does not compute ", info(input.dtype).name,
                                 ", got ", to_string(input)),
                     .fix = cat("x.astype(\"", input.dtype == DType::f64 ? "float32" : "int32",
                                "\") before it")},
                    ErrorKind::type);
    return call.op.infer(call);
}

int build_expr(const OpCall& call, DType output, ScalarProgram& program) {
    std::vector<Expr> inputs;
    for (size_t i = 0; i < call.inputs.size(); ++i)
        inputs.emplace_back(&program,
                            program.input(static_cast<int>(i), compute_type(call.inputs[i].dtype)));
    const ExprArgs args(call, inputs);
    Expr result = call.op.expr ? call.op.expr(args) : call.op.derived_expr(args);
    return narrow(to_type(result, compute_type(output)), output).id();
}

namespace {

// What a derived op needs to know of its base op.
struct Derivation {
    const OpDef* base = nullptr;
    int input = 0;  // the input of the base that the gradient is for
    std::vector<int> operands;  // positions in (inputs..., y, dy) that the derived op reads
};

// The gradient expression over all candidates (inputs..., y, dy), as inputs 0..n+1 of `program`.
Expr full_gradient(const OpCall& call, const Type& output, int k, ScalarProgram& program) {
    const int n = static_cast<int>(call.inputs.size());
    std::vector<Expr> inputs;
    for (int i = 0; i < n; ++i)
        inputs.emplace_back(&program, program.input(i, compute_type(call.inputs[i].dtype)));
    const ExprArgs args(call, inputs);
    const Expr y(&program, program.input(n, compute_type(output.dtype)));
    const Expr dy(&program, program.input(n + 1, output.dtype == DType::f64 ? ScalarType::f64
                                                                            : ScalarType::f32));
    if (call.op.grad_expr) return call.op.grad_expr(args, k, y, dy);
    const Expr result = call.op.expr ? call.op.expr(args) : call.op.derived_expr(args);
    return derivative(result, k, dy);
}

std::vector<int> operands_of(const ScalarProgram& program, int result) {
    ScalarProgram pruned = program;
    std::vector<int> results{result};
    pruned.keep_only(results);
    std::vector<int> operands;
    for (const ScalarInst& inst : pruned.insts())
        if (inst.op == ScalarOp::input) operands.push_back(static_cast<int>(inst.bits));
    std::sort(operands.begin(), operands.end());
    operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
    return operands;
}

// The derived op reads its operands in order, and finds the base's types from theirs. For an input
// that the gradient does not read it takes the type of dy, which cannot matter to the expression.
OpDef make_derived(const Derivation& from, std::string name) {
    OpDef op;
    op.name = std::move(name);
    op.doc = cat("Gradient of ", from.base->name, " for its input ", from.input, ".");
    op.attrs = from.base->attrs;
    op.as_epilogue = from.base->gradient_as_epilogue;
    const int n = static_cast<int>(from.base->inputs.size());
    for (int position : from.operands)
        op.inputs.push_back(position < n    ? from.base->inputs[position]
                            : position == n ? OperandSpec("y")
                                            : OperandSpec("dy"));
    op.derived_expr = [from, n](const ExprArgs& args) {
        Expr any = args[0];
        ScalarProgram* program = any.program();
        const DType dy = args.call.inputs.back().dtype == DType::f64 ? DType::f64 : DType::f32;
        std::vector<Type> types(n, Type{.dtype = dy});
        for (size_t i = 0; i < from.operands.size(); ++i)
            if (from.operands[i] < n) types[from.operands[i]] = args.call.inputs[i];
        const OpCall base{*from.base, args.call.attrs, types};
        ScalarProgram scratch;
        const Expr gradient = full_gradient(base, {.dtype = dy}, from.input, scratch);
        std::vector<int> inputs(n + 2, any.id());
        for (size_t i = 0; i < from.operands.size(); ++i) inputs[from.operands[i]] = args[i].id();
        return Expr(program, program->inline_program(scratch, gradient.id(), inputs));
    };
    return op;
}

// The structure of a gradient must hold for every value of the attributes: it is found with values
// to which no identity applies (a slope of 1 would make leaky_relu flat).
Attrs generic_attrs(const OpDef& op) {
    Attrs attrs;
    for (const AttrSpec& spec : op.attrs) {
        switch (spec.kind) {
            case AttrKind::real: attrs.emplace_back(0.7310585786300049); break;
            case AttrKind::integer: attrs.emplace_back(int64_t{3}); break;
            case AttrKind::integers: attrs.emplace_back(std::vector<int64_t>{}); break;
            case AttrKind::text: attrs.emplace_back(std::string("float32")); break;
            case AttrKind::graph: throw InternalError(cat(op.name, " is no expression"));
        }
    }
    return attrs;
}

const OpDef* derive_by_name(std::string_view name) {
    const size_t dot = name.rfind(".grad");
    if (dot == std::string_view::npos || name.substr(dot + 5).empty()) return nullptr;
    const OpDef* base = find_op_or_null(name.substr(0, dot));
    if (!base || !base->is_elementwise()) return nullptr;
    const int k = std::atoi(std::string(name.substr(dot + 5)).c_str());
    if (k < 0 || k >= static_cast<int>(base->inputs.size())) return nullptr;
    std::vector<Type> types(base->inputs.size());
    for (size_t i = 0; i < types.size(); ++i)
        if (base->kind_of(i) == OperandKind::mask) types[i].dtype = DType::b8;
    const DerivedGrad* derived = derive_grad(*base, types, Type{}, k);
    return derived ? derived->op : nullptr;
}

}  // namespace

const DerivedGrad* derive_grad(const OpDef& op, std::span<const Type> inputs, const Type& output,
                               int k) {
    static Mutex mutex{"derived gradients"};
    static std::unordered_map<std::string, std::unique_ptr<DerivedGrad>> known;
    if (!is_floating(inputs[k].dtype) || !is_floating(output.dtype)) return nullptr;
    // Called for each recorded application: needs no lock after the first time.
    thread_local std::unordered_map<size_t, const DerivedGrad*> recent;
    const size_t key = reinterpret_cast<size_t>(&op) + static_cast<size_t>(k);
    if (auto found = recent.find(key); found != recent.end()) return found->second;
    std::string name = cat(op.name, ".grad", k);
    {
        std::lock_guard lock(mutex);
        if (auto found = known.find(name); found != known.end())
            return recent[key] = found->second.get();
    }
    ScalarProgram program;
    const Attrs attrs = generic_attrs(op);
    const Expr gradient = full_gradient({op, attrs, inputs}, output, k, program);
    std::unique_ptr<DerivedGrad> made;
    if (gradient.valid()) {
        Derivation from{&op, k, operands_of(program, gradient.id())};
        const int dy = static_cast<int>(inputs.size()) + 1;
        made = std::make_unique<DerivedGrad>();
        made->operands = from.operands;
        const ScalarInst& last = program[gradient.id()];
        made->is_identity = last.op == ScalarOp::input && static_cast<int>(last.bits) == dy;
        if (from.operands.empty()) made.reset();  // a constant: the op counts as flat
        else if (!made->is_identity) made->op = &add_op(make_derived(from, name), false);
    }
    std::lock_guard lock(mutex);
    return recent[key] = known.emplace(std::move(name), std::move(made)).first->second.get();
}

uint32_t reduced_axes(const OpCall& call) {
    const Attr& axes = call.attrs.at(0);
    if (const auto* axis = std::get_if<int64_t>(&axes))
        return 1u << normalize_axis(*axis, call.inputs[0].rank(), call.op.name);
    uint32_t mask = 0;
    for (const int64_t axis : std::get<std::vector<int64_t>>(axes)) mask |= 1u << axis;
    return mask;
}

Cost cost_of(const OpCall& call, std::span<const Type> outputs) {
    if (call.op.cost) return call.op.cost(call, outputs);
    Cost cost;
    for (const Type& input : call.inputs) cost.bytes += static_cast<double>(input.bytes());
    for (const Type& output : outputs) {
        cost.bytes += static_cast<double>(output.bytes());
        cost.flops += static_cast<double>(output.numel());
    }
    return cost;
}

size_t hash_value(const Attrs& attrs, size_t seed) {
    const auto mix = [&seed](uint64_t value) {
        seed = (seed ^ value) * 0x9E3779B97F4A7C15ull;
        seed ^= seed >> 29;
    };
    for (const Attr& attr : attrs) {
        if (const auto* i = std::get_if<int64_t>(&attr)) mix(static_cast<uint64_t>(*i));
        else if (const auto* r = std::get_if<double>(&attr)) mix(std::bit_cast<uint64_t>(*r));
        else if (const auto* list = std::get_if<std::vector<int64_t>>(&attr)) {
            mix(list->size());
            for (int64_t value : *list) mix(static_cast<uint64_t>(value));
        } else mix(std::hash<std::string>{}(std::get<std::string>(attr)));
    }
    return seed;
}

std::string to_string(const Attr& attr) {
    if (const auto* i = std::get_if<int64_t>(&attr)) return std::to_string(*i);
    if (const auto* r = std::get_if<double>(&attr)) {
        std::string result = number_text(*r, 17);
        if (result.find_first_of(".en") == std::string::npos)
            result += ".0";  // the parser takes it for a real number then
        return result;
    }
    if (const auto* list = std::get_if<std::vector<int64_t>>(&attr)) {
        std::string text = "[";
        for (size_t i = 0; i < list->size(); ++i)
            text += (i ? ", " : "") + std::to_string((*list)[i]);
        return text + "]";
    }
    std::string quoted = "\"";
    for (char c : std::get<std::string>(attr)) {
        if (c == '"' || c == '\\') quoted += '\\';
        quoted += c;
    }
    return quoted + "\"";
}

}  // namespace megjit::runtime
