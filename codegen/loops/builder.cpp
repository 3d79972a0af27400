#include "codegen/loops/builder.h"

#include <bit>

namespace megjit::codegen::loops {
namespace {

std::vector<int> ids_of(const Values& values) {
    std::vector<int> ids;
    for (const Value value : values)
        if (value) ids.push_back(value.id);
    return ids;
}

}  // namespace

Kind kind_of(ScalarType type) {
    switch (type) {
        case ScalarType::f32: return Kind::f32;
        case ScalarType::f64: return Kind::f64;
        case ScalarType::i32: return Kind::i32;
        case ScalarType::i64: return Kind::i64;
        case ScalarType::b1: break;
    }
    return Kind::b1;
}

Kind storage_of(DType dtype) {
    switch (runtime::size_of(dtype)) {
        case 1: return Kind::i8;
        case 2: return Kind::i16;
        default: return kind_of(runtime::compute_type(dtype));
    }
}

int bytes_of(Kind kind) {
    switch (kind) {
        case Kind::b1:
        case Kind::i8: return 1;
        case Kind::i16: return 2;
        case Kind::i32:
        case Kind::f32: return 4;
        case Kind::i64:
        case Kind::index:
        case Kind::f64: return 8;
    }
    return 0;
}

Value Builder::parameter(Type type) {
    const Value it = value(type);
    function_.parameters.push_back(it.id);
    return it;
}

Value Builder::room(Type type, int64_t vectors, bool is_shared) {
    const Value it = value({.kind = type.kind, .is_pointer = true});
    function_.rooms.push_back({it.id, vectors * type.lanes, type.lanes, is_shared});
    return it;
}

Value Builder::constant(Type type, uint64_t bits) {
    const Value it = value(type);
    function_.values.back() = {type, true, bits};
    return it;
}

Value Builder::number(Type type, double value) {
    switch (type.kind) {
        case Kind::f32: return constant(type, std::bit_cast<uint32_t>(static_cast<float>(value)));
        case Kind::f64: return constant(type, std::bit_cast<uint64_t>(value));
        case Kind::i32: return constant(type, static_cast<uint32_t>(static_cast<int32_t>(value)));
        default:  // 2^63 itself becomes 2^63 - 1
            return constant(type, value < 0x1p63
                                      ? static_cast<uint64_t>(static_cast<int64_t>(value))
                                      : ~uint64_t{0} >> 1);
    }
}

std::optional<int64_t> Builder::known(Value value) const {
    const Function::Known& it = function_.values[static_cast<size_t>(value.id)];
    if (!it.is_constant || it.type != Type{}) return {};
    return static_cast<int64_t>(it.bits);
}

Value Builder::folded(ScalarOp op, const Values& args) {
    if (args.size() != 2 || type_of(args[0]) != Type{}) return {};
    const std::optional<int64_t> a = known(args[0]), b = known(args[1]);
    switch (op) {
        case ScalarOp::add:
            if (a && b) return index(*a + *b);
            return a == 0 ? args[1] : b == 0 ? args[0] : Value{};
        case ScalarOp::sub:
            if (a && b) return index(*a - *b);
            return b == 0 ? args[0] : Value{};
        case ScalarOp::mul:
            if (a && b) return index(*a * *b);
            if (a == 0 || b == 0) return index(0);
            return a == 1 ? args[1] : b == 1 ? args[0] : Value{};
        case ScalarOp::div: return b == 1 ? args[0] : Value{};
        case ScalarOp::mod: return b == 1 ? index(0) : Value{};
        default: return {};
    }
}

Type result_of(ScalarOp op, Type taken) {
    switch (op) {
        case ScalarOp::lt:
        case ScalarOp::le:
        case ScalarOp::eq:
        case ScalarOp::ne: return {Kind::b1, taken.lanes};
        case ScalarOp::bits_f32_to_i32: return {Kind::i32, taken.lanes};
        case ScalarOp::bits_i32_to_f32: return {Kind::f32, taken.lanes};
        default: return taken;
    }
}

Value Builder::compute(ScalarOp op, const Values& args, DType dtype) {
    if (const Value known = folded(op, args)) return known;
    const Type taken = type_of(args[op == ScalarOp::select ? 1 : 0]);
    const Value result = add_inst(Op::compute, args, result_of(op, taken));
    here_->insts.back().compute = op;
    here_->insts.back().dtype = dtype;
    return result;
}

Value Builder::convert(Kind kind, Value a) {
    if (type_of(a).kind == kind) return a;
    return add_inst(Op::convert, {a}, {kind, type_of(a).lanes});
}
Value Builder::bits(Kind kind, Value a) {
    if (type_of(a).kind == kind) return a;
    return add_inst(Op::bits, {a}, {kind, type_of(a).lanes});
}
Value Builder::fence(Value a) { return add_inst(Op::fence, {a}, type_of(a)); }

Value Builder::widen(DType dtype, Value stored) {
    if (runtime::size_of(dtype) >= 4) return stored;
    const Value wide = add_inst(Op::widen, {stored},
                                {kind_of(runtime::compute_type(dtype)), type_of(stored).lanes});
    here_->insts.back().dtype = dtype;
    return wide;
}
Value Builder::shorten(DType dtype, Value value) {
    if (runtime::size_of(dtype) >= 4) return value;
    const Value stored = add_inst(Op::shorten, {value}, {storage_of(dtype), type_of(value).lanes});
    here_->insts.back().dtype = dtype;
    return stored;
}

Value Builder::lanes(Kind kind, int count) {
    return count == 1 ? constant({kind}, 0) : add_inst(Op::lanes, {}, {kind, count});
}
Value Builder::splat(Value scalar, int lanes) {
    const Function::Known& known = function_.values[static_cast<size_t>(scalar.id)];
    if (lanes == 1) return scalar;
    if (known.is_constant) return constant({known.type.kind, lanes}, known.bits);
    return add_inst(Op::splat, {scalar}, {known.type.kind, lanes});
}
Value Builder::lane(Value vector, int number) {
    const Type type = type_of(vector);
    return type.lanes == 1 ? vector : add_inst(Op::lane, {vector}, {type.kind}, number);
}
Value Builder::half(Value vector, bool upper) {
    const Type type = type_of(vector);
    return add_inst(Op::half, {vector}, {type.kind, type.lanes / 2}, upper);
}
Value Builder::zip(Value a, Value b, bool upper) {
    return add_inst(Op::zip, {a, b}, type_of(a), upper);
}
// The first half of the rows is zipped with the second one, again and again: each time one more bit
// of the lane's number changes places with one of the row's number.
Values Builder::transposed(Values rows) {
    const size_t half = rows.size() / 2;
    for (size_t done = 1; done < rows.size(); done *= 2) {
        Values zipped;
        for (size_t n = 0; n < half; ++n)
            for (const bool upper : {false, true})
                zipped.push_back(zip(rows[n], rows[n + half], upper));
        rows = std::move(zipped);
    }
    return rows;
}

Value Builder::at(Value pointer, Value elements) {
    if (known(elements) == 0) return pointer;
    return add_inst(Op::at, {pointer, elements}, type_of(pointer));
}
Value Builder::load(Value pointer, int lanes, bool is_aligned, Value mask) {
    return add_inst(Op::load, {pointer, mask}, {type_of(pointer).kind, lanes}, is_aligned);
}
Value Builder::load_of_others(Value pointer) {
    return add_inst(Op::load, {pointer}, {type_of(pointer).kind}, kOfOthers);
}
Value Builder::gather(Value pointer, Value offsets) {
    return add_inst(Op::gather, {pointer, offsets},
                    {type_of(pointer).kind, type_of(offsets).lanes});
}
void Builder::store(Value pointer, Value value, bool is_aligned, Value mask) {
    add_inst(Op::store, {pointer, value, mask}).number = is_aligned;
}
void Builder::store_past_caches(Value pointer, Value value) {
    add_inst(Op::store, {pointer, value}).number = kPastCaches;
}
void Builder::scatter(Value pointer, Value offsets, Value value, Value mask) {
    add_inst(Op::scatter, {pointer, offsets, value, mask});
}

Block Builder::block(const Values& parameters, const std::function<Values()>& body) {
    Block block{.parameters = ids_of(parameters), .insts = {}, .results = {}};
    Block* const outside = std::exchange(here_, &block);
    block.results = ids_of(body());
    here_ = outside;
    return block;
}

Values Builder::loop(Value from, Value to, Value step, const Values& start, const Body& body) {
    const Value at = value({});
    Values state, results;
    for (const Value first : start) state.push_back(value(type_of(first)));
    Values parameters = {at};
    parameters.insert(parameters.end(), state.begin(), state.end());
    Block inside = block(parameters, [&] { return body(at, state); });
    for (const Value first : start) results.push_back(value(type_of(first)));
    Inst& inst = add_inst(Op::loop, {from, to, step});
    for (const Value first : start) inst.args.push_back(first.id);
    inst.blocks.push_back(std::move(inside));
    inst.results = ids_of(results);
    return results;
}

Values Builder::choose(Value condition, const Arm& then, const Arm& otherwise) {
    Block first = block({}, then), second = block({}, otherwise);
    Values results;
    for (const int id : first.results) results.push_back(value(function_.type_of(id)));
    Inst& inst = add_inst(Op::choose, {condition});
    inst.blocks.push_back(std::move(first));
    inst.blocks.push_back(std::move(second));
    inst.results = ids_of(results);
    return results;
}

void Builder::branch(Value condition, const std::function<void()>& then) {
    choose(condition, [&] { return then(), Values(); }, [] { return Values(); });
}

Value Builder::where(Where what) {
    return add_inst(Op::thread, {}, {}, static_cast<int64_t>(what));
}
Value Builder::from_thread(Value word, int mask) {
    return add_inst(Op::from_thread, {word}, type_of(word), mask);
}
Value Builder::multiply(DType halves, const Values& args) {
    const Value sums = add_inst(Op::multiply, args, type_of(args.back()));
    here_->insts.back().dtype = halves;
    return sums;
}
void Builder::barrier(bool of_warp) { add_inst(Op::barrier, {}).number = of_warp; }

Inst& Builder::add_inst(Op op, const Values& args) {
    Inst& inst = here_->insts.emplace_back();
    inst.op = op;
    inst.args = ids_of(args);
    return inst;
}
Value Builder::add_inst(Op op, const Values& args, Type type, int64_t number) {
    const Value result = value(type);
    Inst& inst = add_inst(op, args);
    inst.number = number;
    inst.results = {result.id};
    return result;
}

}  // namespace megjit::codegen::loops
